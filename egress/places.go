package egress

import "sync/atomic"

// fewConnections is how many connections a container may have when most of the places of
// all containers are taken.
const fewConnections = 32

// Places bound the connections and the exchanges of datagrams of all containers together:
// each takes a descriptor of the server. The last quarter is for containers
// that have few. It is safe for concurrent use.
type Places struct {
	most  int64
	taken atomic.Int64
}

// NewPlaces returns a number of places.
func NewPlaces(most int) *Places { return &Places{most: int64(most)} }

// take takes a place for a container that has own connections with this one. It reports
// false if there is none. nil has places for all.
func (p *Places) take(own int64) bool {
	if p == nil {
		return true
	}
	most := p.most
	if own > fewConnections {
		most -= most / 4
	}
	if p.taken.Add(1) > most {
		p.taken.Add(-1)
		return false
	}
	return true
}

// give gives a place back.
func (p *Places) give() {
	if p != nil {
		p.taken.Add(-1)
	}
}
