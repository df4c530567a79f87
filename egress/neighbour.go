package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A Neighbour is another container of the group of a gate's container, on its private network.
type Neighbour struct {
	ID    string // of the container
	Ports []int  // that it declares, for guests that cannot forward all ports

	// Dial connects to a port of the neighbour. Its error is a Refusal if a rule forbids the connection.
	Dial func(ctx context.Context, port int) (net.Conn, error)
}

// ErrNoNeighbour is returned for a name that no container of the group has.
var ErrNoNeighbour = errors.New("no container of the group has the name")

// A Refusal is an error that says which rule forbids a connection.
func Refusal(reason string) error { return refusal(reason) }

// maxNeighbour is the longest name of a neighbour: a label of a host name.
const maxNeighbour = 63

// reserved are names that programs and hosts files give another meaning.
var reserved = []string{"localhost", "localdomain", "local", "ip6-localhost", "ip6-loopback", "broadcasthost"}

// NeighbourName returns the name that a container may have in its group for s, and whether there is one. It is a single
// label, so that no public host has it. Reserved names, and those whose letters may look like others (xn--), are
// refused.
func NeighbourName(s string) (string, bool) {
	name, ok := CanonicalName(s)
	return name, ok && len(s) <= maxNeighbour && !strings.Contains(s, ".") && !strings.HasPrefix(name, "xn--") &&
		!slices.Contains(reserved, name)
}

// neighbour returns the neighbour with a host's name, or nil if there is none. A host that is not the name of a
// neighbour is looked up nowhere.
func (g *Gate) neighbour(ctx context.Context, host string) (*Neighbour, error) {
	if g.Neighbours == nil {
		return nil, nil
	}
	name, ok := NeighbourName(strings.TrimSuffix(host, "."))
	if !ok {
		return nil, nil
	}
	n, err := g.Neighbours(ctx, name)
	if errors.Is(err, ErrNoNeighbour) {
		return nil, nil
	}
	return n, err
}

// resolveNeighbour answers the lookup of a neighbour's name, and reports whether it is one.
func (g *Gate) resolveNeighbour(w http.ResponseWriter, r *http.Request, name string) bool {
	n, err := g.neighbour(r.Context(), name)
	if err != nil {
		g.refused(Flow{Target: Target{Host: clip(name)}, Reason: unfound(err), Started: time.Now()})
		http.Error(w, unfound(err), http.StatusServiceUnavailable)
		return true
	}
	if n == nil {
		return false
	}
	writeLookup(w, lookupAnswer{Ports: n.Ports, Neighbour: true})
	return true
}

// unfound returns what a sandbox may know of why its neighbours could not be looked up.
func unfound(err error) string {
	if refused, ok := errors.AsType[refusal](err); ok {
		return string(refused)
	}
	return "the neighbours are not known at the moment"
}

// decideNeighbour decides a connection to a neighbour: all ports, by TCP. done is false if the host is none.
func (g *Gate) decideNeighbour(ctx context.Context, t Target) (d Decision, done bool) {
	n, err := g.neighbour(ctx, t.Host)
	switch {
	case err != nil:
		return Decision{Reason: unfound(err)}, true
	case n == nil:
		return Decision{}, false
	case t.UDP:
		return Decision{Reason: "neighbours are reached by TCP only"}, true
	case t.Port < 1 || t.Port > 65535:
		return Decision{Reason: "invalid port"}, true
	}
	return Decision{Allow: true, Reason: "neighbour " + n.ID, neighbour: n}, true
}

// dialNeighbour connects to a neighbour.
func (c *crossing) dialNeighbour(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	return c.decision.neighbour.Dial(ctx, c.target.Port)
}
