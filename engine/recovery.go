package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/store"
)

const (
	// maxResuming bounds the responses that are resumed concurrently. A response counts until
	// its run has started.
	maxResuming = 4
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
	_ = group.Wait() // its functions return nil
	for _, ref := range others {
		delete(t.tries, ref)
	}
	return nil
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

// Recover resumes the runs that an earlier process of this server left unfinished, and
// those whose lease has lapsed. It repeats the latter in the background until Close.
// Containers must have been adopted before.
//
// A resumed run continues after its last turn boundary. Finished items stay. Open items
// are closed as incomplete, and the turn is requested again. A hosted call without output
// is sent to the container again under the same id; the container returns what it has done
// already.
func (e *Engine) Recover(ctx context.Context) error {
	if err := e.Runs.ReleaseOwner(ctx, e.Owner); err != nil {
		e.Log.Error("failed to release leases of the last start; their responses are resumed when the leases lapse",
			"err", err)
	}
	t := newRecovery(e)
	err := t.sweep(ctx)
	e.sweeping.Do(func() { e.wg.Go(t.run) })
	return err
}
