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
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// DefaultPorts are the ports of a rule without ports.
var DefaultPorts = []int{80, 443}

// A Policy defines what a container may reach. The zero Policy allows nothing.
type Policy struct {
	Open   bool           // allows any public name or address at DefaultPorts
	Denied []netip.Prefix // exceptions from Open, also as what a name leads to; Rules beat them
	Rules  []Rule         // allow more
}

// A Rule allows hosts on some ports: "example.com", "*.example.com",
// "db.internal:5432", "10.1.0.0/16:443", "[2001:db8::1]:53/udp".
type Rule struct {
	Name    string       // exact, or "*." and a domain for all names below it; "*" for any; empty if Prefix is set
	Prefix  netip.Prefix // addresses, for connections that name no host
	Ports   []int        // DefaultPorts if empty
	UDP     bool         // datagrams instead of connections; requires Prefix and Ports
	Private bool         // also allows addresses that are not public: Prefix, or those of Name
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
		if !r.matchesName(name) {
			continue
		}
		matched = true
		if r.allowsPort(t.Port) {
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
		if !r.Prefix.IsValid() || !r.Prefix.Contains(addr) || r.UDP != t.UDP || !r.allowsPort(t.Port) {
			continue
		}
		if r.opens(addr) {
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
func (r Rule) opens(addr netip.Addr) bool {
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
	return ok && (p.Open || slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.matchesName(name) }))
}

// Ports returns all ports that the policy can allow for any name, sorted.
func (p *Policy) Ports() []int {
	var ports []int
	if p.Open {
		ports = append(ports, DefaultPorts...)
	}
	for _, r := range p.Rules {
		if r.Name != "" {
			ports = append(ports, r.ports()...)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

func (r Rule) ports() []int {
	if len(r.Ports) == 0 {
		return DefaultPorts
	}
	return r.Ports
}

func (r Rule) allowsPort(port int) bool { return slices.Contains(r.ports(), port) }

func (r Rule) matchesName(name string) bool {
	if suffix, below := strings.CutPrefix(r.Name, "*"); below {
		return suffix == "" || strings.HasSuffix(name, suffix) && len(name) > len(suffix)
	}
	return r.Name != "" && r.Name == name
}

// String returns the rule in the form that ParseRule reads.
func (r Rule) String() string {
	s := r.Name
	if r.Prefix.IsSingleIP() {
		s = r.Prefix.Addr().String()
	} else if r.Prefix.IsValid() {
		s = r.Prefix.String()
	}
	if len(r.Ports) > 0 {
		s = net.JoinHostPort(s, strconv.Itoa(r.Ports[0]))
	}
	if r.UDP {
		s += "/udp"
	}
	return s
}

// ParseRule parses a rule. It does not set Private.
func ParseRule(s string) (Rule, error) {
	var r Rule
	whole := s
	s, r.UDP = strings.CutSuffix(s, "/udp")
	host := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") && strings.Count(s, ":") == 1 ||
		strings.Contains(s, "]:") {
		port, err := strconv.Atoi(s[i+1:])
		if err != nil || port < 1 || port > 65535 {
			return r, fmt.Errorf("%q must end in a port from 1 to 65535", s)
		}
		host, r.Ports = s[:i], []int{port}
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if r.UDP && len(r.Ports) == 0 {
		return r, fmt.Errorf("%q needs a port", whole)
	}
	if prefix, err := netip.ParsePrefix(host); err == nil {
		if prefix.Masked() != prefix {
			return r, fmt.Errorf("%q has bits set beyond the prefix length; write %s", s, prefix.Masked())
		}
		if r.Prefix = prefix; prefix.Addr().Is4In6() {
			return r, fmt.Errorf("%q is an IPv4 prefix in IPv6 form; write it as IPv4", s)
		}
		return r, nil
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Zone() == "" {
		r.Prefix = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen())
		return r, nil
	}
	if r.UDP {
		return r, fmt.Errorf("%q: datagrams are allowed to addresses only, not to names", whole)
	}
	if host == "*" {
		r.Name = host
		return r, nil
	}
	name, ok := CanonicalName(strings.TrimPrefix(host, "*."))
	if !ok {
		return r, fmt.Errorf("%q is not a host name, *.name, or address", s)
	}
	if strings.HasPrefix(host, "*.") {
		name = "*." + name
	}
	r.Name = name
	return r, nil
}

// CanonicalName returns a host name in lower case without its final dot. It returns false
// unless all labels consist of letters, digits, hyphens and underscores (international names
// must be in xn-- form), and if the name could be parsed as an address.
func CanonicalName(s string) (string, bool) {
	if strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 }) { // some of them map to ASCII in lower case
		return "", false
	}
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	if s == "" || len(s) > 253 {
		return "", false
	}
	labels := strings.Split(s, ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "", false
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return "", false
			}
		}
	}
	// Resolvers parse 127.1, 0x7f.1 and 2130706433 as addresses.
	last := labels[len(labels)-1]
	if c := last[0]; c >= '0' && c <= '9' {
		return "", false
	}
	return s, true
}
