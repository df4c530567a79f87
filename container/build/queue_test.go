package build

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// queued is a build of a test, which runs when turn is closed.
type queued struct {
	turn    chan struct{}
	cancel  context.CancelCauseFunc
	release func() // set when turn is closed
	err     error
}

// enqueue makes a build wait, or run if it may.
func enqueue(t *testing.T, q *queue, p berth.ProjectID) *queued {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	b := &queued{turn: make(chan struct{}), cancel: cancel}
	waits, entered := make(chan struct{}), q.enter(p)
	go func() {
		defer close(b.turn)
		b.release, b.err = q.acquire(ctx, entered, func(int) { close(waits) })
	}()
	select {
	case <-waits:
	case <-b.turn:
	case <-time.After(time.Minute):
		t.Fatal("the build neither waits nor runs")
	}
	return b
}

// runs reports whether a build has had its turn.
func (b *queued) runs() bool {
	select {
	case <-b.turn:
		return b.err == nil
	default:
		return false
	}
}

// await waits for the turn of a build.
func (b *queued) await(t *testing.T) {
	t.Helper()
	select {
	case <-b.turn:
	case <-time.After(time.Minute):
		t.Fatal("the build waits for ever")
	}
}

func TestQueue(t *testing.T) {
	q := newQueue(3)
	a := []*queued{enqueue(t, q, "a"), enqueue(t, q, "a"), enqueue(t, q, "a"), enqueue(t, q, "a")}
	if got := []bool{a[0].runs(), a[1].runs(), a[2].runs()}; !slices.Equal(got, []bool{true, true, false}) {
		t.Fatalf("of one project run %v", got)
	}
	b := []*queued{enqueue(t, q, "b"), enqueue(t, q, "b")}
	c := enqueue(t, q, "c")
	if got := []bool{b[0].runs(), b[1].runs(), c.runs()}; !slices.Equal(got, []bool{true, false, false}) {
		t.Fatalf("of the others run %v", got)
	}
	a[0].release() // c has none and goes before b, which has one, and a
	c.await(t)
	if a[2].runs() || b[1].runs() {
		t.Error("a build of a project with another one did not wait")
	}
	cause := errors.New("cancelled")
	a[2].cancel(cause)
	a[2].await(t)
	if !errors.Is(a[2].err, cause) {
		t.Errorf("got %v", a[2].err)
	}
	a[1].release()
	a[3].await(t) // a has none again
	for _, one := range []*queued{a[3], b[0], c} {
		one.release()
	}
	b[1].await(t)
	b[1].release()
	if q.total != 0 || len(q.running) != 0 || len(q.waiting) != 0 {
		t.Errorf("remain %d, %v, %v", q.total, q.running, q.waiting)
	}
}

// A queue of one runs the builds of a single project.
func TestQueueOfOne(t *testing.T) {
	q := newQueue(1)
	first, second := enqueue(t, q, "a"), enqueue(t, q, "a")
	if !first.runs() || second.runs() {
		t.Fatal("one should run")
	}
	first.release()
	second.await(t)
	second.release()
}
