package balance

import (
	"math"
	"time"

	"github.com/berth-run/berth"
)

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
