package engine

import (
	"context"

	"github.com/berth-run/berth"
)

// Settled returns when the run of a response has ended, which may be a moment after its
// last event was stored.
func (e *Engine) Settled(id berth.ResponseID) {
	if r := e.live.get(id); r != nil {
		<-r.ended
	}
}

// Sweep resumes the responses with a lapsed lease immediately.
func (e *Engine) Sweep(ctx context.Context) error { return newRecovery(e).sweep(ctx) }
