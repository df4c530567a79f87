// Package egress connects sandboxes to the network, and is their only way there. It decides
// which connections are allowed, checks that the data names the declared host, dials, fills in
// secrets, and reports each connection.
//
// A sandbox has no network interface. Its guest passes each connection to the Berth server as a
// stream with a host name and a port (package guest), which the server serves with a Gate. Data
// from the guest is untrusted: a hostile program may have replaced the guest. Decide is a pure
// function. What could invalidate its decision later, such as another name in the TLS handshake
// or a name that resolves to a private address, is checked before a byte is sent.
package egress

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth/egress/allow"
)

// A Rule allows hosts on some ports.
type Rule = allow.Rule

// DefaultPorts are the ports of a rule without ports.
var DefaultPorts = allow.DefaultPorts

// A Policy defines what a container may reach. The zero Policy allows nothing.
type Policy struct {
	Open   bool           // allows any public name or address at DefaultPorts
	Denied []netip.Prefix // exceptions from Open, also as what a name leads to; Rules beat them
	Rules  []Rule         // allow more

	Requests []allow.Request // restrict the requests to hosts that Rules allow
}

// A Target is the destination of a connection.
type Target struct {
	Host string // a name, or an address
	Port int
	UDP  bool // datagrams instead of a connection
}

func (t Target) String() string {
	s := net.JoinHostPort(t.Host, strconv.Itoa(t.Port))
	if t.UDP {
		s += "/udp"
	}
	return s
}

// network returns the target's network for package net.
func (t Target) network() string {
	if t.UDP {
		return "udp"
	}
	return "tcp"
}

// A Decision is the result of Decide, with a short reason.
type Decision struct {
	Allow   bool
	Private bool // private addresses may be dialled
	Address bool // the target is an address, so there is no name to compare
	Open    bool // only Policy.Open allows it, so its denied addresses must not be dialled
	Reason  string

	neighbour *Neighbour // the target, which no policy knows; or nil
}

// Decide returns whether the policy allows the target. It compares hosts without case and
// without a final dot. It refuses a host that is neither a name nor an address.
func Decide(p *Policy, t Target) Decision {
	if t.Port < 1 || t.Port > 65535 {
		return Decision{Reason: "invalid port"}
	}
	if addr, err := netip.ParseAddr(strings.Trim(t.Host, "[]")); err == nil {
		return decideAddr(p, addr.Unmap().WithZone(""), t)
	}
	if t.UDP {
		return Decision{Reason: "datagrams are allowed to addresses only"}
	}
	name, ok := CanonicalName(t.Host)
	if !ok {
		return Decision{Reason: "not a host name"}
	}
	matched := false
	for _, r := range p.Rules {
		if !r.HasName(name) {
			continue
		}
		matched = true
		if r.HasPort(t.Port) {
			return Decision{Allow: true, Private: r.Private, Reason: "rule " + r.String()}
		}
	}
	if p.Open && slices.Contains(DefaultPorts, t.Port) {
		return Decision{Allow: true, Open: true, Reason: "open"}
	}
	if matched {
		return Decision{Reason: "the port is not allowed for this name"}
	}
	return Decision{Reason: "the name is not allowed"}
}

func decideAddr(p *Policy, addr netip.Addr, t Target) Decision {
	reason := "the address is not allowed"
	for _, r := range p.Rules {
		if !r.Prefix.IsValid() || !r.Prefix.Contains(addr) || r.UDP != t.UDP || !r.HasPort(t.Port) {
			continue
		}
		if opens(r, addr) {
			return Decision{Allow: true, Private: r.Private, Address: true, Reason: "rule " + r.String()}
		}
		reason = "the address is not public"
	}
	if p.Open && !t.UDP && Public(addr) && slices.Contains(DefaultPorts, t.Port) {
		if p.denies(addr) {
			return Decision{Reason: "the address is denied"}
		}
		return Decision{Allow: true, Open: true, Address: true, Reason: "open"}
	}
	if forbidden(addr) {
		reason = "the address is never allowed"
	}
	return Decision{Reason: reason}
}

// denies reports whether the policy denies an address, which is unmapped and has no zone.
func (p *Policy) denies(addr netip.Addr) bool {
	return slices.ContainsFunc(p.Denied, func(d netip.Prefix) bool { return d.Contains(addr) })
}

// opens reports whether a rule allows an address within its prefix. A forbidden address must be
// named exactly, by the operator.
func opens(r Rule, addr netip.Addr) bool {
	if forbidden(addr) {
		return r.Private && r.Prefix.IsSingleIP() && nameable(addr)
	}
	return r.Private || Public(addr)
}

// Addresses reports whether the policy can allow a connection to an address.
func (p *Policy) Addresses() bool {
	return p.Open || slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Prefix.IsValid() })
}

// Names reports whether the policy allows a name on any port, so that its lookup is answered.
func (p *Policy) Names(host string) bool {
	name, ok := CanonicalName(host)
	return ok && (p.Open || slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.HasName(name) }))
}

// Ports returns all ports that the policy can allow for any name, sorted.
func (p *Policy) Ports() []int {
	var ports []int
	if p.Open {
		ports = append(ports, DefaultPorts...)
	}
	for _, r := range p.Rules {
		if r.Name != "" {
			ports = append(ports, r.AllPorts()...)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// ParseRule parses a rule. It does not set Private.
func ParseRule(s string) (Rule, error) { return allow.Parse(s) }

// ParseRequest parses a rule for requests to a host.
func ParseRequest(s string) (allow.Request, error) { return allow.ParseRequest(s) }

// CanonicalName returns a host name in lower case without its final dot, and whether it is one.
func CanonicalName(s string) (string, bool) { return allow.CanonicalName(s) }

// requestsFor returns the rules for the requests to a host; none if they are not restricted.
func (p *Policy) requestsFor(host string) (found []allow.Request) {
	for _, r := range p.Requests {
		if (Rule{Name: r.Host}).HasName(host) {
			found = append(found, r)
		}
	}
	return found
}
