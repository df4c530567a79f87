package image

import (
	"sync"
	"time"
)

// A gauge tells of the progress of who adds an image. It may be used from several
// goroutines.
type gauge struct {
	tell  func(Progress) // may be nil
	began time.Time

	mu       sync.Mutex
	done     int64 // bytes
	last     Phase
	lastTold time.Time
}

func newGauge(tell func(Progress)) *gauge { return &gauge{tell: tell, began: time.Now()} }

// step tells of a step.
func (g *gauge) step(p Phase, step string, done, total int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.say(p, step, done, total)
}

// add tells of n more bytes of total.
func (g *gauge) add(p Phase, step string, n, total int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done += n
	if p != g.last || time.Since(g.lastTold) >= time.Second {
		g.say(p, step, (g.done+1<<20-1)>>20, (total+1<<20-1)>>20)
	}
}

func (g *gauge) say(p Phase, step string, done, total int64) {
	now := time.Now()
	g.last, g.lastTold = p, now
	if g.tell != nil {
		g.tell(Progress{Phase: p, Done: int(done), Total: int(total), Step: step, Elapsed: now.Sub(g.began)})
	}
}
