package egress

import "sync/atomic"

// fewConnections bounds the connections of a container that may use the last quarter of the
// slots.
const fewConnections = 32

// Slots bounds the connections and datagram exchanges of all containers together, because each
// needs a file descriptor of the server. The last quarter is reserved for containers with few
// connections. It is safe for concurrent use.
type Slots struct {
	limit int64
	taken atomic.Int64
}

// NewSlots returns n slots.
func NewSlots(n int) *Slots { return &Slots{limit: int64(n)} }

// acquire acquires a slot for a container that has own connections, this one included. It
// returns false if there is none. A nil *Slots has no limit.
func (p *Slots) acquire(own int64) bool {
	if p == nil {
		return true
	}
	limit := p.limit
	if own > fewConnections {
		limit -= limit / 4
	}
	if p.taken.Add(1) > limit {
		p.taken.Add(-1)
		return false
	}
	return true
}

// release releases a slot.
func (p *Slots) release() {
	if p != nil {
		p.taken.Add(-1)
	}
}
