package engine

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth/tool"
)

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
			e.release(last, r)
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
