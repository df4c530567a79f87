package egress

import (
	"context"
	"net"
	"net/netip"
	"testing"
)

// Of IPv6, only addresses allocated for the Internet are public. Other addresses may be routed inside: site-local ones,
// those of overlay networks, and forms that a translator leads to any IPv4 address.
func TestPublicAddresses(t *testing.T) {
	for _, text := range []string{"fec0::1", "feff::1", "::ffff:0:a00:1", "200::1", "300:1234::1", "400::1", "4000::1",
		"e000::1", "64:ff9b::a00:1", "64:ff9b:1:a00:1::", "::7f00:1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "2002:7f00:1::",
		"2001::1", "fe80::1%eth0", "fec0::1%eth0", "ff0e::1", "::", "::1", "0.0.0.0", "0.1.2.3", "100.64.0.1",
		"255.255.255.255"} {
		a := netip.MustParseAddr(text)
		if Public(a) {
			t.Errorf("%s is public", text)
		}
	}
	for _, text := range []string{"2606:2800:220:1::1", "2a00:1450:4001::1", "2001:4860:4860::8888", "93.184.216.34",
		"::ffff:93.184.216.34"} {
		if a := netip.MustParseAddr(text); !Public(a) {
			t.Errorf("%s is not public", text)
		}
	}
}

// A name whose address changes between two look-ups: each connection goes to an address that its own look-up gave
// and that was checked. An address that is no public one is skipped, whatever stands before and after it.
func TestNamesThatChange(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com"))
	answers := [][]string{{"93.184.216.34"}, {"127.0.0.1", "fec0::1", "::ffff:0:a00:1"},
		{"169.254.169.254", "93.184.216.34", "10.0.0.1"}, {"0.0.0.0"}, {"::ffff:10.0.0.1"}}
	n := 0
	w.gate.Lookup = func(context.Context, string) ([]netip.Addr, error) {
		var all []netip.Addr
		for _, text := range answers[n%len(answers)] {
			all = append(all, netip.MustParseAddr(text))
		}
		n++
		return all, nil
	}
	var dialled []netip.Addr
	dial := w.gate.Dial
	w.gate.Dial = func(ctx context.Context, network string, to netip.AddrPort) (c net.Conn, err error) {
		dialled = append(dialled, to.Addr())
		return dial(ctx, network, to)
	}
	for range 2 * len(answers) {
		_, _ = w.gate.Client(0).Get("http://example.com/")
	}
	if n != 2*len(answers) {
		t.Errorf("%d look-ups for %d connections", n, 2*len(answers))
	}
	for _, a := range dialled {
		if a != netip.MustParseAddr("93.184.216.34") {
			t.Errorf("%s was dialled", a)
		}
	}
	if len(dialled) != 4 {
		t.Errorf("dialled %v", dialled)
	}
}
