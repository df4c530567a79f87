package egress

import "sync/atomic"

// Traffic counts the data and connections of a Gate while they pass. It is safe for concurrent
// use. A nil *Traffic counts nothing.
type Traffic struct {
	sent, received, passed, denied, alive atomic.Int64
}

// Totals are the counters of a Traffic.
type Totals struct {
	Sent, Received int64 // bytes to and from hosts
	Allowed        int64 // connections that reached their host
	Refused        int64 // refused connections and name lookups
	Open           int64 // open connections
}

// Totals returns the current counters.
func (t *Traffic) Totals() Totals {
	if t == nil {
		return Totals{}
	}
	return Totals{t.sent.Load(), t.received.Load(), t.passed.Load(), t.denied.Load(), t.alive.Load()}
}

func (t *Traffic) moved(sent, received int) {
	if t != nil {
		t.sent.Add(int64(sent))
		t.received.Add(int64(received))
	}
}

func (t *Traffic) allowed() {
	if t != nil {
		t.passed.Add(1)
	}
}

func (t *Traffic) refused() {
	if t != nil {
		t.denied.Add(1)
	}
}

// opened counts a connection until the function it returns is called.
func (t *Traffic) opened() (closed func()) {
	if t == nil {
		return func() {}
	}
	t.alive.Add(1)
	return func() { t.alive.Add(-1) }
}
