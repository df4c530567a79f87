package egress

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// metadata are the addresses of the clouds' metadata services, which serve credentials.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("169.254.170.2"),
	netip.MustParseAddr("169.254.169.123"),
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("168.63.129.16"), netip.MustParseAddr("192.0.0.192"),
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:ec2::23"), netip.MustParseAddr("fd00:42::42"),
	netip.MustParseAddr("fd20:ce::254"),
}

// global has all IPv6 addresses that are allocated for the Internet. Others may be routed inside: site-local
// addresses, overlay networks, and forms of IPv4 addresses, to which a translator leads (NAT64, SIIT).
var global = netip.MustParsePrefix("2000::/3")

// inside are the ranges, besides those that netip knows and IPv6 outside of global, that are not on the public Internet
// (IANA's special-purpose registries), or that lead to other addresses.
var inside = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/23"), // includes Teredo
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), // 6to4 leads to any IPv4 address
	netip.MustParsePrefix("3fff::/20"),
}

// Public reports whether an address is on the public Internet.
func Public(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return a.IsGlobalUnicast() && !a.IsPrivate() && !forbidden(a) && (a.Is4() || global.Contains(a)) &&
		!slices.ContainsFunc(inside, func(p netip.Prefix) bool { return p.Contains(a) })
}

// forbidden reports whether an address must not be dialled unless the operator has named
// exactly that address.
func forbidden(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() || slices.Contains(metadata, a)
}

// nameable reports whether the operator may name a forbidden address.
func nameable(a netip.Addr) bool {
	return !a.IsUnspecified() && !a.IsMulticast()
}

// mayDial reports whether a connection that d allowed may use an address. A name that a rule
// allows as private may resolve to this machine's loopback only if another rule allows that
// address.
func (p *Policy) mayDial(d Decision, t Target, a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if host, err := netip.ParseAddr(t.Host); err == nil {
		return host.Unmap().WithZone("") == a // Decide has checked it
	}
	if forbidden(a) || d.Open && p.denies(a) {
		return false
	}
	if Public(a) {
		return true
	}
	if !d.Private {
		return false
	}
	return !a.IsLoopback() || decideAddr(p, a, t).Allow
}

// Own reports whether an address is one of this machine's, or might be. Such an address may
// be public but protected by a firewall that does not see connections from the machine itself.
func Own(a netip.Addr) bool {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(own, func(o net.Addr) bool {
		n, ok := o.(*net.IPNet)
		if !ok {
			return false
		}
		b, _ := netip.AddrFromSlice(n.IP)
		return b.Unmap() == a.Unmap().WithZone("")
	})
}

// Covers reports whether the operator's rules open all that r opens. A rule without ports
// opens all ports. "*" matches any name, but no address.
func Covers(rules []Rule, r Rule) bool {
	return slices.ContainsFunc(rules, func(c Rule) bool {
		if len(c.Ports) > 0 && (!slices.Equal(c.Ports, r.Ports) || c.UDP != r.UDP) {
			return false
		}
		if r.Prefix.IsValid() {
			return c.Prefix.IsValid() && c.Prefix.Bits() <= r.Prefix.Bits() && c.Prefix.Contains(r.Prefix.Addr()) &&
				(!forbidden(r.Prefix.Addr()) || c.Prefix == r.Prefix)
		}
		suffix, wild := strings.CutPrefix(c.Name, "*")
		return c.Name != "" && c.Name == r.Name || wild && strings.HasSuffix(r.Name, suffix)
	})
}
