// Package route gives a sandbox without a network card a route for addresses: a
// device whose packets end in a network stack of the guest's own.
//
// The stack turns packets to addresses without a name into connections and datagrams,
// which are handed on. Everything else (ICMP, fragments, other protocols) is dropped.
package route

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	nic        = 1
	queue      = 256      // packets that wait to be sent to the sandbox
	maxPending = 256      // connections that wait for a decision
	tcpBuffer  = 64 << 10 // initial size, in each direction of a connection
	tcpLargest = 1 << 20
)

// An Out forwards connections to the server. Its functions are called concurrently.
type Out struct {
	// Connect returns a stream to an address, or an error if it is refused. A stream for
	// datagrams has the length of each in two bytes before it, in both directions.
	Connect func(to netip.AddrPort, datagrams bool) (net.Conn, error)
	// Carry carries a connection of the sandbox over its stream until both are done.
	Carry func(conn Conn, stream net.Conn)
}

// A Conn is a connection that can close one direction, and can be reset.
type Conn interface {
	net.Conn
	CloseWrite() error
	Reset()
}

type conn struct {
	*gonet.TCPConn
	end tcpip.Endpoint
}

func (c conn) Reset() { c.end.Abort() }

// A Route is the device with its stack.
type Route struct {
	out    Out
	device *os.File
	link   *channel.Endpoint
	stack  *stack.Stack

	sender, receiver sync.WaitGroup

	mu      sync.Mutex
	flows   int                          // open exchanges of datagrams
	refused map[netip.AddrPort]time.Time // addresses that refused datagrams, with the time
}

// Open creates the device and the route, and serves them until Close. It needs
// CAP_NET_ADMIN and /dev/net/tun.
func Open(out Out) (_ *Route, err error) {
	device, err := openDevice()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			device.Close()
		}
	}()
	r := &Route{out: out, device: device, link: channel.New(queue, mtu, ""), refused: map[netip.AddrPort]time.Time{}}
	r.stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol},
	})
	for _, option := range []tcpip.SettableTransportProtocolOption{
		new(tcpip.TCPSACKEnabled(true)),
		// A connection that its host closes first would hold its addresses for a minute, and
		// another one from the same port of the sandbox would be refused.
		new(tcpip.TCPTimeWaitTimeoutOption(0)),
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: tcpBuffer, Max: tcpLargest},
		&tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: tcpBuffer, Max: tcpLargest},
	} {
		if err := r.stack.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
			return nil, stackError{err}
		}
	}
	if err := r.stack.CreateNIC(nic, r.link); err != nil {
		return nil, stackError{err}
	}
	// The stack accepts packets to every address and answers from it.
	for _, err := range []tcpip.Error{r.stack.SetPromiscuousMode(nic, true), r.stack.SetSpoofing(nic, true)} {
		if err != nil {
			return nil, stackError{err}
		}
	}
	r.stack.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic},
		{Destination: header.IPv6EmptySubnet, NIC: nic}})
	r.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, tcp.NewForwarder(r.stack, 0, maxPending,
		r.connection).HandlePacket)
	r.stack.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(r.stack, r.datagrams).HandlePacket)
	r.sender.Go(r.send)
	r.receiver.Go(r.receive)
	return r, nil
}

// Close removes the device. Connections through it end with an error. The connections
// behind it must be closed before: Close does not wait for them.
func (r *Route) Close() error {
	r.stack.Close()
	r.link.Close()
	r.sender.Wait() // until the ends of the connections were sent
	err := r.device.Close()
	r.receiver.Wait() // until the device is unused
	return err
}

// receive reads packets from the sandbox.
func (r *Route) receive() {
	buf := make([]byte, mtu)
	for {
		n, err := r.device.Read(buf)
		if err != nil {
			return
		}
		protocol, ok := admit(buf[:n])
		if !ok {
			continue
		}
		if id, ok := opens(protocol, buf[:n]); ok {
			r.settle(protocol, id)
		}
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(buf[:n])})
		r.link.InjectInbound(protocol, pkt)
		pkt.DecRef()
	}
}

// send writes packets to the sandbox.
func (r *Route) send() {
	for {
		pkt := r.link.ReadContext(context.Background())
		if pkt == nil {
			return
		}
		view := pkt.ToView()
		_, _ = r.device.Write(view.AsSlice()) // TCP resends lost packets
		view.Release()
		pkt.DecRef()
	}
}

// admit reports whether a packet is an unfragmented one of TCP or UDP, and its network
// protocol.
func admit(p []byte) (tcpip.NetworkProtocolNumber, bool) {
	carried := func(b byte) bool { return b == byte(tcp.ProtocolNumber) || b == byte(udp.ProtocolNumber) }
	switch {
	case len(p) >= header.IPv4MinimumSize && p[0]>>4 == 4:
		const fragment = 0x3fff // the more-fragments bit and the offset
		return ipv4.ProtocolNumber, (uint16(p[6])<<8|uint16(p[7]))&fragment == 0 && carried(p[9])
	case len(p) >= header.IPv6MinimumSize && p[0]>>4 == 6:
		return ipv6.ProtocolNumber, carried(p[6])
	}
	return 0, false
}

// opens reports whether an admitted packet opens a connection, and which.
func opens(protocol tcpip.NetworkProtocolNumber, p []byte) (id stack.TransportEndpointID, ok bool) {
	var segment header.TCP
	if protocol == ipv4.ProtocolNumber {
		h := header.IPv4(p)
		if !h.IsValid(len(p)) || h.TransportProtocol() != tcp.ProtocolNumber {
			return id, false
		}
		id.LocalAddress, id.RemoteAddress, segment = h.DestinationAddress(), h.SourceAddress(), header.TCP(h.Payload())
	} else {
		h := header.IPv6(p)
		if !h.IsValid(len(p)) || h.TransportProtocol() != tcp.ProtocolNumber {
			return id, false
		}
		id.LocalAddress, id.RemoteAddress, segment = h.DestinationAddress(), h.SourceAddress(), header.TCP(h.Payload())
	}
	if len(segment) < header.TCPMinimumSize ||
		segment.Flags()&(header.TCPFlagSyn|header.TCPFlagAck) != header.TCPFlagSyn {
		return id, false
	}
	id.LocalPort, id.RemotePort = segment.DestinationPort(), segment.SourcePort()
	return id, true
}

// settle waits, for a moment, until the stack has dropped an old connection with the
// addresses of a new one. Otherwise the packet that opens the new one is queued to the old
// one, and refused when that ends.
func (r *Route) settle(protocol tcpip.NetworkProtocolNumber, id stack.TransportEndpointID) {
	const patience, look = 10 * time.Millisecond, 100 * time.Microsecond
	for range patience / look {
		if r.stack.FindTransportEndpoint(protocol, tcp.ProtocolNumber, id, nic) == nil {
			return
		}
		time.Sleep(look)
	}
}

// connection forwards a connection, or resets it if it is refused.
func (r *Route) connection(req *tcp.ForwarderRequest) {
	stream, err := r.out.Connect(target(req.ID()), false)
	if err != nil {
		req.Complete(true)
		return
	}
	var wq waiter.Queue
	ep, failed := req.CreateEndpoint(&wq)
	req.Complete(failed != nil)
	if failed != nil {
		stream.Close()
		return
	}
	r.out.Carry(conn{gonet.NewTCPConn(&wq, ep), ep}, stream)
}

// target returns the destination of a packet.
func target(id stack.TransportEndpointID) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(id.LocalAddress.AsSlice())
	return netip.AddrPortFrom(addr, id.LocalPort)
}

// A stackError wraps an error of the stack.
type stackError struct{ err tcpip.Error }

func (e stackError) Error() string { return "network stack: " + e.err.String() }
