package image

import (
	"sync"
	"time"
)

// A gauge reports the progress of Add or Save. It is safe for concurrent use.
type gauge struct {
	report  func(Progress) // may be nil
	started time.Time

	mu         sync.Mutex
	done       int64 // bytes
	last       Phase
	lastReport time.Time
}

func newGauge(report func(Progress)) *gauge { return &gauge{report: report, started: time.Now()} }

// step reports a step.
func (g *gauge) step(p Phase, step string, done, total int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.send(p, step, done, total)
}

// restart counts from 0 again, for the next phase.
func (g *gauge) restart() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = 0
}

// add counts n more bytes of total. It reports them at most once a second.
func (g *gauge) add(p Phase, step string, n, total int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done += n
	if p != g.last || time.Since(g.lastReport) >= time.Second {
		g.send(p, step, (g.done+1<<20-1)>>20, (total+1<<20-1)>>20)
	}
}

func (g *gauge) send(p Phase, step string, done, total int64) {
	now := time.Now()
	g.last, g.lastReport = p, now
	if g.report != nil {
		g.report(Progress{Phase: p, Done: int(done), Total: int(total), Step: step, Elapsed: now.Sub(g.started)})
	}
}
