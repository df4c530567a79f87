package clock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/clock"
)

var epoch = time.Unix(1_800_000_000, 0)

// Everything rings in the order of its time, not of its start, and sees its own time.
func TestAdvance(t *testing.T) {
	m := clock.NewManual(epoch)
	var got []time.Duration
	note := func() { got = append(got, m.Since(epoch)) }
	m.AfterFunc(3*time.Second, note)
	m.AfterFunc(time.Second, func() {
		note()
		m.AfterFunc(time.Second, note)
	})
	stopped := m.AfterFunc(2*time.Second, note)
	late := m.AfterFunc(time.Hour, note)
	if !stopped.Stop() || stopped.Stop() || !late.Reset(2500*time.Millisecond) {
		t.Error("Stop or Reset does not say whether the timer was pending")
	}
	m.Advance(10 * time.Second)
	want := []time.Duration{time.Second, 2 * time.Second, 2500 * time.Millisecond, 3 * time.Second}
	if !slices.Equal(got, want) || m.Since(epoch) != 10*time.Second {
		t.Errorf("rang after %v, want %v; the clock shows %v", got, want, m.Since(epoch))
	}
}

func TestTicker(t *testing.T) {
	m := clock.NewManual(epoch)
	tick := m.NewTicker(time.Minute)
	for n := range 3 {
		m.Advance(time.Minute)
		if at := <-tick.C; at.Sub(epoch) != time.Duration(n+1)*time.Minute {
			t.Errorf("tick %d came after %v", n, at.Sub(epoch))
		}
	}
	m.Advance(3 * time.Minute) // nobody receives: two of three ticks are dropped
	<-tick.C
	tick.Stop()
	m.Advance(time.Hour)
	select {
	case <-tick.C:
		t.Error("a stopped ticker ticks")
	default:
	}
}

// A context ends when the clock reaches its end, with contexts that were made of it, or when its parent ends.
func TestWithTimeout(t *testing.T) {
	m := clock.NewManual(epoch)
	cause := errors.New("cause")
	ctx, cancel := m.WithTimeoutCause(t.Context(), time.Minute, cause)
	defer cancel()
	below, cancelBelow := context.WithCancel(ctx)
	defer cancelBelow()
	m.Advance(time.Minute - 1)
	if ctx.Err() != nil || below.Err() != nil {
		t.Fatalf("ended early: %v, %v", ctx.Err(), below.Err())
	}
	m.Advance(1)
	<-below.Done()
	if ctx.Err() != context.DeadlineExceeded || context.Cause(ctx) != cause {
		t.Errorf("got %v because of %v", ctx.Err(), context.Cause(ctx))
	}
	if below.Err() != context.DeadlineExceeded {
		t.Errorf("below it: got %v", below.Err())
	}

	parent, end := context.WithCancel(t.Context())
	ctx, cancel = m.WithTimeout(parent, time.Minute)
	defer cancel()
	end()
	<-ctx.Done()
	if ctx.Err() != context.Canceled {
		t.Errorf("its parent ended: got %v", ctx.Err())
	}
}

// Await returns once somebody waits for that long, and Sleep ends when the clock has reached the time.
func TestAwait(t *testing.T) {
	m := clock.NewManual(epoch)
	m.After(time.Hour) // another one
	over := make(chan error)
	go func() { over <- clock.Sleep(t.Context(), m, time.Minute) }()
	if err := m.Await(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	m.Advance(time.Minute)
	if err := <-over; err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Await(ended, time.Second); err != context.Canceled {
		t.Errorf("nobody waits: got %v", err)
	}
}
