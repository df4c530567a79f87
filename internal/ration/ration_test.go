package ration

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth"
)

const mb = 1 << 20

func TestOwnerIsLimitedToItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{Total: 100 * mb, Each: 60 * mb, Wait: time.Minute})
		first, second, other := p.Open("a"), p.Open("a"), p.Open("b")
		if err := first.Reserve(t.Context(), 50*mb); err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		go func() { waited <- second.Reserve(t.Context(), 20*mb) }()
		synctest.Wait()
		select {
		case err := <-waited:
			t.Fatalf("70 of 60 MB were granted: %v", err)
		default:
		}
		if err := other.Reserve(t.Context(), 40*mb); err != nil {
			t.Fatalf("another owner waits for the first: %v", err)
		}
		first.Return(5 * mb)
		synctest.Wait()
		if p.Held() != 85*mb {
			t.Errorf("got %d MB held while an owner is at its limit", p.Held()/mb)
		}
		first.Close()
		if err := <-waited; err != nil || p.Held() != 60*mb {
			t.Errorf("got %v, %d MB", err, p.Held()/mb)
		}
		second.Close()
		other.Close()
		other.Close()
		if p.Held() != 0 || len(p.owners) != 0 || len(p.waiters) != 0 {
			t.Errorf("the pool is not empty: %d, %v, %v", p.Held(), p.owners, p.waiters)
		}
	})
}

func TestWaitersAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{Total: 10 * mb, Each: 10 * mb, Wait: 30 * time.Second, Waiting: 3})
		holder := p.Open("a")
		if err := holder.Reserve(t.Context(), 1000*mb); err != nil { // alone, it may need more
			t.Fatal(err)
		}
		start := time.Now()
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				err := p.Open("a").Reserve(t.Context(), mb)
				e, ok := errors.AsType[*berth.Error](err)
				if !ok || e.Code != berth.CodeUnavailable || e.RetryAfter <= 0 || time.Since(start) != 30*time.Second {
					t.Errorf("got %v after %v", err, time.Since(start))
				}
			})
		}
		synctest.Wait()
		if err := p.Open("a").Reserve(t.Context(), mb); berth.ErrorCode(err) != berth.CodeUnavailable ||
			time.Since(start) != 0 {
			t.Errorf("a fourth waiter: got %v after %v", err, time.Since(start))
		}
		if err := p.Open("a").Reserve(t.Context(), Free); err != nil {
			t.Errorf("a reservation within Free waits: %v", err)
		}
		all.Wait()
		left, leave := context.WithCancel(t.Context())
		leave()
		if err := p.Open("b").Reserve(left, mb); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		holder.Close()
		if p.Held() != 0 || len(p.owners) != 0 {
			t.Errorf("the pool is not empty: %d, %v", p.Held(), p.owners)
		}
	})
}

// Small reservations cannot delay a large one forever.
func TestLargeReservationIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{Total: 10 * mb, Each: 10 * mb})
		holder, large, small := p.Open("a"), p.Open("b"), p.Open("c")
		if err := holder.Reserve(t.Context(), 5*mb); err != nil {
			t.Fatal(err)
		}
		var order []string
		var all sync.WaitGroup
		all.Go(func() { _ = large.Reserve(t.Context(), 10*mb); order = append(order, "large"); large.Close() })
		synctest.Wait()
		all.Go(func() { _ = small.Reserve(t.Context(), mb); order = append(order, "small"); small.Close() })
		synctest.Wait()
		holder.Close()
		all.Wait()
		if len(order) != 2 || order[0] != "large" {
			t.Errorf("got %v", order)
		}
	})
}

func TestNilPoolHasNoLimit(t *testing.T) {
	var p *Pool
	a := p.Open("a")
	if err := a.Reserve(t.Context(), 1<<60); err != nil || p.Held() != 0 {
		t.Error(err)
	}
	a.Return(1)
	a.Close()
	if From(t.Context()) != nil || From(With(t.Context(), a)) != nil {
		t.Error("got an account")
	}
}
