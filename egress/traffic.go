package egress

import "sync/atomic"

// Traffic counts what passes a Gate, while it passes. It is safe for concurrent
// use; a nil one counts nothing.
type Traffic struct {
	sent, received, passed, denied, alive atomic.Int64
}

// Totals are the figures of a Traffic.
type Totals struct {
	Sent, Received int64 // bytes, toward the hosts and back
	Allowed        int64 // connections that reached their host
	Refused        int64 // connections, and names looked up, that were refused
	Open           int64 // connections now
}

// Totals returns the figures of this moment.
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
