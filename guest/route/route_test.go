package route

import (
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
)

// packet returns a header of a version, with some bytes set.
func packet(version byte, size int, set map[int]byte) []byte {
	p := make([]byte, size)
	p[0] = version << 4
	for i, b := range set {
		p[i] = b
	}
	return p
}

func TestAdmit(t *testing.T) {
	for what, c := range map[string]struct {
		packet []byte
		want   bool
	}{
		"TCP":                      {packet(4, 20, map[int]byte{9: 6}), true},
		"UDP":                      {packet(4, 20, map[int]byte{9: 17}), true},
		"UDP not to be fragmented": {packet(4, 20, map[int]byte{6: 0x40, 9: 17}), true},
		"a first fragment":         {packet(4, 20, map[int]byte{6: 0x20, 9: 6}), false},
		"a last fragment":          {packet(4, 20, map[int]byte{7: 1, 9: 6}), false},
		"ICMP":                     {packet(4, 20, map[int]byte{9: 1}), false},
		"SCTP":                     {packet(4, 20, map[int]byte{9: 132}), false},
		"IPv4 in IPv4":             {packet(4, 40, map[int]byte{9: 4}), false},
		"TCP over IPv6":            {packet(6, 40, map[int]byte{6: 6}), true},
		"UDP over IPv6":            {packet(6, 40, map[int]byte{6: 17}), true},
		"ICMPv6":                   {packet(6, 40, map[int]byte{6: 58}), false},
		"a fragment of IPv6":       {packet(6, 48, map[int]byte{6: 44, 40: 6}), false},
		"a route of IPv6's sender": {packet(6, 48, map[int]byte{6: 43, 40: 6}), false},
		"hop by hop":               {packet(6, 48, map[int]byte{40: 6}), false},
		"a short packet":           {packet(4, 19, map[int]byte{9: 6}), false},
		"a short packet of IPv6":   {packet(6, 39, map[int]byte{6: 6}), false},
		"another version":          {packet(5, 40, map[int]byte{6: 6, 9: 6}), false},
		"nothing":                  {nil, false},
	} {
		protocol, got := admit(c.packet)
		if got != c.want {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
		if want := map[byte]int{4: int(ipv4.ProtocolNumber), 6: int(ipv6.ProtocolNumber)}; got &&
			int(protocol) != want[c.packet[0]>>4] {
			t.Errorf("%s: got protocol %d", what, protocol)
		}
	}
}

func TestOpens(t *testing.T) {
	const flags, offset = 13, 12
	v4 := func(set map[int]byte) []byte {
		p := packet(4, 40, map[int]byte{3: 40, 9: 6, 12: 10, 15: 1, 16: 10, 19: 2, 21: 1, 23: 2, 20 + offset: 5 << 4})
		p[0] |= 5
		for i, b := range set {
			p[i] = b
		}
		return p
	}
	v6 := func(set map[int]byte) []byte {
		p := packet(6, 60, map[int]byte{5: 20, 6: 6, 23: 1, 39: 2, 41: 1, 43: 2, 40 + offset: 5 << 4})
		for i, b := range set {
			p[i] = b
		}
		return p
	}
	for what, c := range map[string]struct {
		packet []byte
		want   bool
	}{
		"SYN":                     {v4(map[int]byte{20 + flags: 2}), true},
		"SYN with ECN":            {v4(map[int]byte{20 + flags: 0xc2}), true},
		"SYN and ACK":             {v4(map[int]byte{20 + flags: 0x12}), false},
		"ACK":                     {v4(map[int]byte{20 + flags: 0x10}), false},
		"UDP":                     {v4(map[int]byte{9: 17, 20 + flags: 2}), false},
		"a header beyond the end": {v4(map[int]byte{0: 0x4f, 20 + flags: 2}), false},
		"a length beyond the end": {v4(map[int]byte{3: 60, 20 + flags: 2}), false},
		"a length of a header":    {v4(map[int]byte{3: 20, 20 + flags: 2}), false},
		"SYN over IPv6":           {v6(map[int]byte{40 + flags: 2}), true},
		"ACK over IPv6":           {v6(map[int]byte{40 + flags: 0x10}), false},
		"UDP over IPv6":           {v6(map[int]byte{6: 17, 40 + flags: 2}), false},
		"nothing over IPv6":       {v6(map[int]byte{5: 0, 40 + flags: 2}), false},
	} {
		protocol := ipv4.ProtocolNumber
		if c.packet[0]>>4 == 6 {
			protocol = ipv6.ProtocolNumber
		}
		id, got := opens(protocol, c.packet)
		if got != c.want {
			t.Errorf("%s: got %v, want %v", what, got, c.want)
		}
		if got && (id.RemotePort != 1 || id.LocalPort != 2 ||
			id.RemoteAddress.AsSlice()[id.RemoteAddress.Len()-1] != 1 ||
			id.LocalAddress.AsSlice()[id.LocalAddress.Len()-1] != 2) {
			t.Errorf("%s: got %+v", what, id)
		}
	}
}
