package engine

import "github.com/berth-run/berth"

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
