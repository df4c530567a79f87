package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

const (
	// maxResuming is how many responses are resumed at once. Those that run are not
	// counted.
	maxResuming = 4
	// firstReopen and lastReopen bound the pause between two attempts at a run whose
	// events cannot be stored.
	firstReopen = 100 * time.Millisecond
	lastReopen  = 10 * time.Second
	// lastResume is the longest pause between two attempts at a response that this
	// server does not run, and forgetResume how long attempts are counted.
	lastResume   = 5 * time.Minute
	forgetResume = time.Hour
)

// A takeover resumes responses whose lease has lapsed. A response that is resumed
// again and again, because it cannot be read or ends its server, waits longer each
// time.
type takeover struct {
	engine *Engine
	tries  map[store.RunRef]*attempts
	broken bool // the last sweep failed
}

// attempts counts how often a response was resumed.
type attempts struct {
	n    int
	last time.Time
}

func newTakeover(e *Engine) *takeover {
	return &takeover{engine: e, tries: map[store.RunRef]*attempts{}}
}

// run sweeps until the engine closes.
func (t *takeover) run() {
	e := t.engine
	for backoff.Sleep(e.base, jittered(e.Limits.Lease/3)) == nil {
		err := t.sweep(e.base)
		if err != nil && !t.broken && e.base.Err() == nil {
			e.Log.Error("failed to list responses whose lease has lapsed", "err", err)
		}
		t.broken = err != nil
	}
}

// sweep resumes the responses whose lease has lapsed.
func (t *takeover) sweep(ctx context.Context) error {
	now := time.Now()
	lapsed, err := t.engine.Runs.OrphanedRuns(ctx, now)
	if err != nil {
		return err
	}
	for ref, a := range t.tries {
		if now.Sub(a.last) > forgetResume {
			delete(t.tries, ref)
		}
	}
	var group errgroup.Group
	group.SetLimit(maxResuming)
	for _, ref := range lapsed {
		if t.engine.busy(ref.Response) || !t.due(ref, now) {
			continue
		}
		group.Go(func() error {
			err := t.engine.resume(ctx, ref, nil)
			if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrNotFound) {
				t.engine.Log.Error("failed to resume a response", "response", ref.Response, "err", err)
			}
			return nil
		})
	}
	return group.Wait()
}

// due reports whether a response is to be resumed now, and counts that.
func (t *takeover) due(ref store.RunRef, now time.Time) bool {
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

// busy reports whether a response needs no server: it runs here, or it is one that is
// not stored and whose clients are still reading.
func (e *Engine) busy(id berth.ResponseID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id] != nil || e.awaited[id] > 0
}

// claim makes the caller the only one in this process who creates or resumes a
// response, until it calls release.
func (e *Engine) claim(ctx context.Context, id berth.ResponseID) (release func(), err error) {
	for {
		e.mu.Lock()
		other := e.claims[id]
		if other == nil {
			defer e.mu.Unlock()
			claimed := make(chan struct{})
			e.claims[id] = claimed
			return func() {
				e.mu.Lock()
				delete(e.claims, id)
				e.mu.Unlock()
				close(claimed)
			}, nil
		}
		e.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// reopen brings a run whose events could not be stored to its last turn boundary, as
// soon as the store works again. It reports whether the run goes on; if not, it is
// another server's, is deleted, or the engine closes.
func (e *Engine) reopen(ctx context.Context, r *run) bool {
	if time.Since(r.reopened) > lastReopen {
		r.delay = 0 // it has gone on for a while
	}
	for {
		r.failHurried()
		r.delay = min(max(2*r.delay, firstReopen), lastReopen)
		t := time.NewTimer(jittered(r.delay))
		select {
		case <-t.C:
		case failed := <-r.hurry:
			r.hurried = append(r.hurried, failed)
		case <-e.base.Done():
		}
		t.Stop()
		switch cause := context.Cause(ctx); {
		case errors.Is(cause, tool.ErrDetached), e.base.Err() != nil:
			last, cancel := context.WithTimeout(context.Background(), endGrace)
			defer cancel()
			r.release(last)
			return false
		case errors.Is(cause, errLeaseLost):
			return false
		}
		told, err := r.acquire(e.base)
		if err == nil {
			err = r.rewind(e.base, told)
		}
		switch {
		case err == nil:
			r.reopened = time.Now()
			r.log().Info("resumed a response after its events could not be stored", "calls", len(r.pending))
			return true
		case lost(err):
			r.log().Warn("the run is no longer this server's", "err", err)
			return false
		}
	}
}

// failHurried answers those who asked for an attempt that has failed.
func (r *run) failHurried() {
	for _, failed := range r.hurried {
		close(failed)
	}
	r.hurried = nil
}

// jittered returns about d, so that what began together does not go on together.
func jittered(d time.Duration) time.Duration { return d - d/4 + rand.N(d/2+1) }
