package route

import (
	"encoding/binary"
	"io"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	maxFlows   = 256              // exchanges of datagrams at a time; others are dropped
	maxRefused = 1024             // refused addresses in the cache
	refusedFor = 30 * time.Second // time for which a refused address is reported as unreachable
	flowIdle   = 3 * time.Minute  // an idle exchange ends after this; the server's own limit is shorter
)

// datagrams starts an exchange with an address. If one was refused recently, the sender
// gets an ICMP error.
func (r *Route) datagrams(req *udp.ForwarderRequest) (handled bool) {
	to := target(req.ID())
	r.mu.Lock()
	defer r.mu.Unlock()
	if until, ok := r.refused[to]; ok && time.Now().Before(until) {
		return false
	}
	if r.flows >= maxFlows {
		return true
	}
	var wq waiter.Queue
	ep, err := req.CreateEndpoint(&wq)
	if err != nil {
		return true
	}
	r.flows++
	conn := gonet.NewUDPConn(&wq, ep)
	go func() {
		r.exchange(conn, to)
		r.mu.Lock()
		r.flows--
		r.mu.Unlock()
	}()
	return true
}

func (r *Route) refuse(to netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if len(r.refused) >= maxRefused {
		maps.DeleteFunc(r.refused, func(_ netip.AddrPort, until time.Time) bool { return now.After(until) })
	}
	if len(r.refused) < maxRefused {
		r.refused[to] = now.Add(refusedFor)
	}
}

// exchange carries datagrams to and from an address.
func (r *Route) exchange(conn net.Conn, to netip.AddrPort) {
	defer conn.Close()
	stream, err := r.out.Connect(to, true)
	if err != nil {
		r.refuse(to)
		return
	}
	defer stream.Close()
	var both sync.WaitGroup
	both.Go(func() {
		defer stream.Close()
		buf := make([]byte, 2+1<<16)
		for {
			_ = conn.SetReadDeadline(time.Now().Add(flowIdle))
			n, err := conn.Read(buf[2:])
			if err != nil {
				return
			}
			binary.BigEndian.PutUint16(buf, uint16(n))
			if _, err := stream.Write(buf[:2+n]); err != nil {
				return
			}
		}
	})
	both.Go(func() {
		defer conn.Close()
		buf := make([]byte, 1<<16)
		for {
			if _, err := io.ReadFull(stream, buf[:2]); err != nil {
				return
			}
			n := binary.BigEndian.Uint16(buf)
			if _, err := io.ReadFull(stream, buf[:n]); err != nil {
				return
			}
			_, _ = conn.Write(buf[:n])
		}
	})
	both.Wait()
}
