package container

import (
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
)

// A network is a container's access to the network.
type network struct {
	secrets []egress.Secret

	tokens tokenSources

	traffic egress.Traffic

	gates egress.Switch // has the gate of the access once the sandbox is connected

	mu     sync.Mutex
	access access // guarded by mu
}

// An access is the part of a network that may change.
type access struct {
	policy     *egress.Policy
	transforms []egress.Transform
	ca         *egress.Authority  // nil without secrets, transforms and rules for requests
	proxy      *berth.EgressProxy // the client's own; may be nil
}

// open opens a gate for an access. The former one ends.
func (n *network) open(a access, gate func(access) *egress.Gate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.access = a
	n.gates.Set(gate(a))
}

// connected opens the gate for the present access, which may change during the call.
func (n *network) connected(gate func(access) *egress.Gate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gates.Set(gate(n.access))
}

// present returns the access.
func (n *network) present() access {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.access
}
