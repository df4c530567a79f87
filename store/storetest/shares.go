package storetest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth/store"
)

// Shares is the suite of store.Shares. open returns an empty store that implements it, and
// store.Members, and closes it with the test.
func Shares(t *testing.T, open func(t *testing.T) store.Store) {
	for name, f := range map[string]func(*testing.T, store.Members, store.Shares){
		"Numbers": shareNumbers, "Silent": shareSilent, "Rates": shareRates, "Concurrent": shareConcurrent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			members, ok := s.(store.Members)
			shares, ok2 := s.(store.Shares)
			if !ok || !ok2 {
				t.Fatalf("%T does not implement store.Members and store.Shares", s)
			}
			for _, id := range []string{"a", "b"} {
				if err := members.JoinMember(t.Context(), store.Member{ID: id, Address: "x:1"}, time.Hour); err != nil {
					t.Fatal(err)
				}
			}
			f(t, members, shares)
		})
	}
}

// draw draws one share for a server and expects the share and the rest.
func draw(t *testing.T, s store.Shares, server string, want store.Want, got int64, left float64) {
	t.Helper()
	shares, err := s.Draw(t.Context(), server, "proj_a", want)
	if err != nil {
		t.Fatal(err)
	}
	if len(shares) != 1 || shares[0].Got != got || shares[0].Left < left || shares[0].Left > left+1 {
		t.Errorf("%s draws %+v: got %+v, want %d, and %.0f left", server, want, shares, got, left)
	}
}

func shareNumbers(t *testing.T, _ store.Members, s store.Shares) {
	want := func(used, need, ask int64) store.Want {
		return store.Want{Kind: store.ShareResponses, Limit: 5, Used: used, Need: need, Ask: ask}
	}
	draw(t, s, "a", want(0, 1, 3), 3, 2)
	draw(t, s, "b", want(0, 1, 3), 2, 0) // less than it asks for
	draw(t, s, "b", want(2, 1, 1), 2, 0) // none is left
	draw(t, s, "a", want(1, 0, 0), 1, 2) // it returns two
	draw(t, s, "b", want(2, 3, 3), 2, 2) // not without all that it needs
	draw(t, s, "b", want(7, 0, 0), 7, -3)
	draw(t, s, "a", want(0, 1, 1), 0, -2)
	if other, err := s.Draw(t.Context(), "a", "proj_b", want(0, 1, 1), want(1, 0, 0)); err != nil ||
		other[0].Got != 1 || other[1].Got != 1 {
		t.Errorf("another project: %+v, %v", other, err)
	}
	if err := s.ForgetShares(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	draw(t, s, "a", want(0, 1, 5), 5, 0)
}

// shareSilent has a server fall silent: its responses go to others, its containers do not.
func shareSilent(t *testing.T, m store.Members, s store.Shares) {
	for _, kind := range []store.ShareKind{store.ShareResponses, store.ShareContainers} {
		draw(t, s, "b", store.Want{Kind: kind, Limit: 2, Need: 2, Ask: 2}, 2, 0)
	}
	if err := m.RenewMember(t.Context(), "b", 0); err != nil {
		t.Fatal(err)
	}
	draw(t, s, "a", store.Want{Kind: store.ShareContainers, Limit: 2, Need: 1, Ask: 1}, 0, 0)
	draw(t, s, "a", store.Want{Kind: store.ShareResponses, Limit: 2, Need: 1, Ask: 1}, 1, 1)
	if err := m.RemoveMember(t.Context(), "b", 0); err != nil {
		t.Fatal(err)
	}
	draw(t, s, "a", store.Want{Kind: store.ShareContainers, Limit: 2, Need: 1, Ask: 1}, 1, 1)
}

func shareRates(t *testing.T, _ store.Members, s store.Shares) {
	want := func(used, need, ask int64) store.Want {
		return store.Want{Kind: store.ShareTokens, Limit: 60, Used: used, Need: need, Ask: ask} // one a second
	}
	draw(t, s, "a", want(0, 10, 20), 20, 40)
	draw(t, s, "b", want(0, 10, 60), 40, 0)
	draw(t, s, "a", want(0, 50, 50), 0, 0)
	draw(t, s, "b", want(-30, 0, 0), 0, 30) // it returns some
	draw(t, s, "a", want(100, 0, 0), 0, -70)
	draw(t, s, "b", want(-1000, 0, 0), 0, 60) // never more than the limit
	draw(t, s, "b", store.Want{Kind: store.ShareRequests, Limit: 3, Need: 1, Ask: 1}, 1, 2)
	// a higher limit applies immediately
	draw(t, s, "b", store.Want{Kind: store.ShareRequests, Limit: 6, Need: 1, Ask: 1}, 1, 4)
	if err := s.ForgetShares(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	draw(t, s, "a", store.Want{Kind: store.ShareRequests, Limit: 6, Need: 5, Ask: 5}, 0, 4) // a restart refills nothing
	for start := time.Now(); ; {
		shares, err := s.Draw(t.Context(), "a", "proj_a", store.Want{Kind: store.ShareWrites, Limit: 60_000, Need: 500,
			Ask: 60_000})
		if err != nil {
			t.Fatal(err)
		}
		if start.Add(30 * time.Second).Before(time.Now()) {
			t.Fatal("the bucket does not refill")
		}
		if shares[0].Got > 0 && shares[0].Got < 60_000 {
			break // the second time
		}
	}
}

// shareConcurrent has two servers draw concurrently: together they get the limit.
func shareConcurrent(t *testing.T, _ store.Members, s store.Shares) {
	var rate, number atomic.Int64
	var all sync.WaitGroup
	for _, server := range []string{"a", "b"} {
		all.Go(func() {
			var has int64
			for range 30 {
				got, err := s.Draw(t.Context(), server, "proj_a",
					store.Want{Kind: store.ShareRequests, Limit: 20, Need: 1, Ask: 1},
					store.Want{Kind: store.ShareContainers, Limit: 20, Used: has, Need: 1, Ask: 1})
				if err != nil {
					t.Error(err)
					return
				}
				rate.Add(got[0].Got)
				has = got[1].Got
			}
			number.Add(has)
		})
	}
	all.Wait()
	if r, n := rate.Load(), number.Load(); r < 20 || r > 25 || n != 20 { // the rate refills by one in 3 s
		t.Errorf("two servers got %d of a rate of 20, and %d of 20", r, n)
	}
}
