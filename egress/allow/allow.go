// Package allow has the rules that name the hosts and ports to which connections are allowed, and their text. Package
// egress decides by them.
package allow

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

// A Rule allows hosts on some ports: "example.com", "*.example.com",
// "db.internal:5432", "10.1.0.0/16:443", "[2001:db8::1]:53/udp".
type Rule struct {
	Name    string       // exact, or "*." and a domain for all names below it; "*" for any; empty if Prefix is set
	Prefix  netip.Prefix // addresses, for connections that name no host
	Ports   []int        // DefaultPorts if empty
	UDP     bool         // datagrams instead of connections; requires Prefix and Ports
	Private bool         // also allows addresses that are not public: Prefix, or those of Name
}

// AllPorts returns the ports of the rule: DefaultPorts if it names none.
func (r Rule) AllPorts() []int {
	if len(r.Ports) == 0 {
		return DefaultPorts
	}
	return r.Ports
}

// HasPort reports whether a port is one of the rule.
func (r Rule) HasPort(port int) bool { return slices.Contains(r.AllPorts(), port) }

// HasName reports whether the rule names a host. The name is canonical.
func (r Rule) HasName(name string) bool {
	if suffix, below := strings.CutPrefix(r.Name, "*"); below {
		return suffix == "" || strings.HasSuffix(name, suffix) && len(name) > len(suffix)
	}
	return r.Name != "" && r.Name == name
}

// String returns the rule in the form that Parse reads.
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

// Parse parses a rule. It does not set Private.
func Parse(s string) (Rule, error) {
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
