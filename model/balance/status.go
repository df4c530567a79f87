package balance

import (
	"sync/atomic"
	"time"
)

// counters count since the start.
type counters struct {
	asked, answered, failed atomic.Int64
	input, output           atomic.Int64
}

// A Status is how an upstream does.
type Status struct {
	Name     string
	Circuit  string // closed, half-open or open
	InFlight int
	Waiting  int // for its limits
	Keys     []KeyStatus

	// Since the start:
	Asked        int64 // questions
	Answered     int64 // to the end
	Failed       int64 // as the circuit counts it
	InputTokens  int64
	OutputTokens int64
}

// A KeyStatus is how a key does.
type KeyStatus struct {
	Name     string
	InFlight int
	Rests    time.Duration // from now; 0 if it does not
}

// Status returns how the upstream does now.
func (u *Upstream) Status() Status {
	s := Status{Name: u.opts.Name, Circuit: u.breaker.String(), InFlight: int(u.gate.inside.Load()), Waiting: int(u.gate.waiting.Load()),
		Asked: u.count.asked.Load(), Answered: u.count.answered.Load(), Failed: u.count.failed.Load(),
		InputTokens: u.count.input.Load(), OutputTokens: u.count.output.Load()}
	u.keys.mu.Lock()
	defer u.keys.mu.Unlock()
	for _, k := range u.keys.keys {
		s.Keys = append(s.Keys, KeyStatus{Name: k.Name, InFlight: k.inFlight, Rests: max(0, time.Until(k.until))})
	}
	return s
}
