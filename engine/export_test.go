package engine

import (
	"context"

	"github.com/berth-run/berth"
)

// Settled returns when nothing of a response's run is under way any more, which may
// be a moment after its last event was told.
func (e *Engine) Settled(id berth.ResponseID) {
	e.mu.Lock()
	r := e.runs[id]
	e.mu.Unlock()
	if r != nil {
		<-r.ended
	}
}

// Sweep resumes at once the responses whose lease has lapsed.
func (e *Engine) Sweep(ctx context.Context) error { return newTakeover(e).sweep(ctx) }
