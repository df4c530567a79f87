package balance

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
)

// counters count since the server started.
type counters struct {
	turns, completed, failed atomic.Int64
	input, output            atomic.Int64
	first, whole             average // times to the first output and of completed turns
}

// An average is a mean in which the latest values count most. It is safe for concurrent use.
type average struct {
	mu  sync.Mutex
	of  time.Duration
	any bool
}

// add adds a value: a tenth of the average is the latest.
func (a *average) add(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.any {
		a.of, a.any = d, true
	}
	a.of += (d - a.of) / 10
}

// milliseconds returns the average; 0 before the first value.
func (a *average) milliseconds() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of.Milliseconds()
}

// Status returns the current state and counts of the upstream.
func (u *Upstream) Status() berth.Upstream {
	s := berth.Upstream{Object: "upstream", Name: u.opts.Name, Circuit: u.breaker.String(),
		InFlight: int(u.gate.inside.Load()), Waiting: int(u.gate.waiting.Load()),
		Turns: u.count.turns.Load(), Completed: u.count.completed.Load(), Failed: u.count.failed.Load(),
		FirstTokenMS: u.count.first.milliseconds(), TurnMS: u.count.whole.milliseconds(),
		InputTokens: u.count.input.Load(), OutputTokens: u.count.output.Load()}
	u.keys.mu.Lock()
	defer u.keys.mu.Unlock()
	for _, k := range u.keys.keys {
		rest := max(0, math.Ceil(time.Until(k.until).Seconds()))
		s.Keys = append(s.Keys, berth.UpstreamKey{Name: k.Name, InFlight: k.inFlight, RestSeconds: int(rest)})
	}
	return s
}
