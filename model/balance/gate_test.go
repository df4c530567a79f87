package balance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// Turns beyond the concurrency limit wait in order, up to a time. They go to another
// upstream if there is one.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{}
		release := make(chan struct{})
		slow := func(ctx context.Context, req *model.Request, yield func(model.Delta, error) bool) {
			select {
			case <-release:
				answers("a")(ctx, req, yield)
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
			}
		}
		u := open(t, n, UpstreamOptions{Name: "a", Limits: Limits{Concurrency: 1, Wait: time.Minute}}, slow)
		lone := group(t, Options{Primaries: []Target{{Upstream: u}}})
		both := group(t, Options{Primaries: []Target{{Upstream: u}},
			Fallbacks: []Target{{Upstream: open(t, n, UpstreamOptions{Name: "b"}, answers("b"))}}})
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				if _, _, err := collect(t.Context(), lone, request()); err != nil {
					t.Error(err)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
			})
			synctest.Wait()
		}
		if s := u.Status(); s.InFlight != 1 || s.Waiting != 2 {
			t.Errorf("got %d in flight and %d waiting", s.InFlight, s.Waiting)
		}
		if text, _, err := collect(t.Context(), both, request()); text != "b" || err != nil {
			t.Errorf("with another upstream: got %q, %v", text, err)
		}
		for range 3 {
			release <- struct{}{}
			synctest.Wait()
		}
		all.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("the order was %v", order)
		}

		held, leave := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() { defer close(gone); _, _, _ = collect(held, lone, request()) }()
		synctest.Wait()
		start := time.Now()
		_, _, err := collect(t.Context(), lone, request())
		if _, known := model.RetryAfter(err); berth.ErrorCode(err) != berth.CodeRateLimited || !known ||
			time.Since(start) != time.Minute {
			t.Errorf("after the time to wait: got %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("enough")
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if _, _, err := collect(ctx, lone, request()); !errors.Is(err, cause) {
			t.Errorf("a caller that leaves the queue: got %v", err)
		}
		leave()
		<-gone
		if s := u.Status(); s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("at the end: got %d in flight and %d waiting", s.InFlight, s.Waiting)
		}
	})
}

func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := open(t, &notes{}, UpstreamOptions{Name: "a",
			Limits: Limits{RequestsPerMinute: 60, Wait: 10 * time.Second}}, answers("a"))
		g := group(t, Options{Primaries: []Target{{Upstream: u}}})
		start := time.Now()
		for range 12 {
			if _, _, err := collect(t.Context(), g, request()); err != nil {
				t.Fatal(err)
			}
		}
		if got := time.Since(start).Round(time.Second); got != 6*time.Second {
			t.Errorf("12 requests of 60 a minute, 6 of them at once, took %v", got)
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		refused := 0
		for range 15 {
			all.Go(func() {
				if _, _, err := collect(t.Context(), g, request()); berth.ErrorCode(err) == berth.CodeRateLimited {
					mu.Lock()
					refused++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if refused != 5 {
			t.Errorf("of 15 at once %d were refused, want the 5 that had to wait longer than 10 s", refused)
		}
	})
}

// Estimated tokens are reserved before a turn. Output tokens delay the next.
func TestTokenRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := open(t, &notes{}, UpstreamOptions{Name: "a", Limits: Limits{TokensPerMinute: 600, Wait: time.Hour}},
			func(_ context.Context, _ *model.Request, yield func(model.Delta, error) bool) {
				yield(model.Finish{Usage: berth.Usage{TotalTokens: 900}}, nil)
			})
		g := group(t, Options{Primaries: []Target{{Upstream: u}}})
		for range 2 {
			if _, _, err := collect(t.Context(), g, request()); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if _, _, err := collect(t.Context(), g, request()); err != nil {
			t.Fatal(err)
		}
		if got := time.Since(start); got < 50*time.Second || got > 70*time.Second {
			t.Errorf("after twice the minute's tokens the next turn waited %v", got)
		}
	})
}
