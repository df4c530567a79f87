package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

const (
	// maxResuming bounds the responses that are resumed at once. A response counts until
	// its run has started.
	maxResuming = 4
	// firstReopen and lastReopen bound the pause between two attempts to reopen a run
	// whose events cannot be stored.
	firstReopen = 100 * time.Millisecond
	lastReopen  = 10 * time.Second
	// lastResume is the longest pause between two attempts to resume a response.
	lastResume = 5 * time.Minute
	// forgetResume is the time after its last attempt when a response's attempts are
	// forgotten.
	forgetResume = time.Hour
)

// A recovery resumes responses whose lease has lapsed. The pause between two attempts at
// one response doubles, in case the response cannot be read or crashes its server. It is
// for one goroutine.
type recovery struct {
	engine *Engine
	tries  map[store.RunRef]*attempts
	failed bool // the last sweep
}

// attempts counts the attempts to resume a response.
type attempts struct {
	n    int
	last time.Time
}

func newRecovery(e *Engine) *recovery {
	return &recovery{engine: e, tries: map[store.RunRef]*attempts{}}
}

// run sweeps until the engine closes.
func (t *recovery) run() {
	e := t.engine
	for backoff.Sleep(e.base, jittered(e.Limits.Lease/3)) == nil {
		err := t.sweep(e.base)
		if err != nil && !t.failed && e.base.Err() == nil {
			e.Log.Error("failed to list responses with a lapsed lease", "err", err)
		}
		t.failed = err != nil
	}
}

// sweep resumes the responses whose lease has lapsed. It logs the responses that it cannot
// resume, and returns an error if it cannot list them.
func (t *recovery) sweep(ctx context.Context) error {
	now := time.Now()
	lapsed, err := t.engine.Runs.OrphanedRuns(ctx, now)
	if err != nil {
		return fmt.Errorf("list lapsed runs: %w", err)
	}
	for ref, a := range t.tries {
		if now.Sub(a.last) > forgetResume {
			delete(t.tries, ref)
		}
	}
	var group errgroup.Group
	group.SetLimit(maxResuming)
	var mu sync.Mutex
	var others []store.RunRef // responses that other servers resume
	for _, ref := range lapsed {
		if t.engine.live.busy(ref.Response) || !t.due(ref, now) {
			continue
		}
		group.Go(func() error {
			err := t.engine.resume(ctx, ref, nil)
			if errors.Is(err, errForOther) {
				mu.Lock()
				defer mu.Unlock()
				others = append(others, ref)
				return nil
			}
			if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrNotFound) {
				t.engine.Log.Error("failed to resume response", "response", ref.Response, "err", err)
			}
			return nil
		})
	}
	err = group.Wait()
	for _, ref := range others {
		delete(t.tries, ref)
	}
	return err
}

// due reports whether to resume a response now. If so, it counts the attempt.
func (t *recovery) due(ref store.RunRef, now time.Time) bool {
	a := t.tries[ref]
	if a == nil {
		a = &attempts{}
		t.tries[ref] = a
	} else if now.Sub(a.last) < min(t.engine.Limits.Lease/3<<min(a.n, 10), lastResume) {
		return false
	}
	a.n++
	a.last = now
	return true
}

// An outage is the state of a run whose events cannot be stored.
type outage struct {
	delay    time.Duration      // before the last attempt to reopen the run
	reopened time.Time          // when an attempt last succeeded
	hurry    chan chan struct{} // requests an attempt now, which closes the sent channel if it fails
	hurried  []chan struct{}    // of attempts that have not ended
}

// wait returns when to try to reopen the run: after a delay that doubles with each
// attempt, on a request, or when base ends.
func (o *outage) wait(base context.Context) {
	for _, failed := range o.hurried {
		close(failed)
	}
	o.hurried = nil
	o.delay = min(max(2*o.delay, firstReopen), lastReopen)
	t := time.NewTimer(jittered(o.delay))
	defer t.Stop()
	select {
	case <-t.C:
	case failed := <-o.hurry:
		o.hurried = append(o.hurried, failed)
	case <-base.Done():
	}
}

// reopen returns a run whose events could not be stored to its last turn boundary, once
// the store works again. It reports whether the run can continue. It cannot if another
// server holds it, if it was deleted, or if the engine closes.
func (r *run) reopen(ctx context.Context) bool {
	e := r.engine
	if time.Since(r.outage.reopened) > lastReopen {
		r.outage.delay = 0 // this is a new outage
	}
	for {
		r.outage.wait(e.base)
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, errLeaseLost):
			return false
		case errors.Is(cause, tool.ErrDetached), e.base.Err() != nil:
			last, cancel := context.WithTimeout(context.Background(), endGrace)
			defer cancel()
			r.release(last)
			return false
		}
		err := e.mayResume(e.base, r.record)
		if err == nil {
			err = r.rejoin(e.base)
		}
		switch {
		case errors.Is(err, errForOther):
			r.log().Info("left run to the server that has its container")
			return false
		case err == nil:
			r.outage.reopened = time.Now()
			r.log().Info("resumed response after a store failure", "calls", len(r.pending))
			return true
		case lost(err):
			r.log().Warn("lost run to another server", "err", err)
			return false
		}
	}
}

// rejoin acquires the run again and returns it to its last turn boundary.
func (r *run) rejoin(ctx context.Context) error {
	events, err := r.acquire(ctx)
	if err != nil {
		return err
	}
	return r.rewind(ctx, events)
}

// jittered returns a random duration near d, which spreads work that started at the same
// time.
func jittered(d time.Duration) time.Duration { return d - d/4 + rand.N(d/2+1) }
