package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A crossing is one connection from a sandbox to a host.
type crossing struct {
	ctx      context.Context // ends with the sandbox's connection
	gate     *Gate
	target   Target
	decision Decision
	flow     *Flow
	recorded sync.Once
	answered bool            // errors were answered in HTTP
	tunneled bool            // the host was reached before the client's first bytes were known
	used     map[string]bool // names of the secrets that were filled in

	sent, received atomic.Int64
}

// dialsFirst reports whether the host is dialled before the sandbox's connection is accepted.
// Otherwise the client must first send a name for comparison.
func (c *crossing) dialsFirst() bool {
	return c.decision.neighbour != nil || c.target.UDP ||
		c.target.Port != 443 && c.target.Port != 80 && !c.gate.fillsFor(c.target.Host).reads()
}

// serve forwards the connection according to the first bytes of its client. A name on the
// wire must be the allowed one. host is the connection to the host, or nil if it is not
// dialled yet.
func (c *crossing) serve(client *countedConn, host net.Conn) error {
	if c.target.UDP {
		return c.serveDatagrams(client, host)
	}
	if c.decision.neighbour != nil {
		return c.splice(client, host) // it has no other names, and gets no secrets
	}
	if host != nil {
		return c.relay(client, host)
	}
	what := c.gate.fillsFor(c.target.Host)
	_ = client.SetReadDeadline(time.Now().Add(firstTime))
	first, err := client.in.Peek(1)
	if err != nil {
		return err
	}
	switch {
	case first[0] == recordHandshake && c.target.Port != 80:
		return c.serveTLS(client, what)
	case c.target.Port == 443:
		return refusal("not TLS on port 443")
	case looksLikeHTTP(client.in) == isHTTP:
		if !c.decision.Private {
			what = fills{requests: what.requests} // others on the network could read the secrets
		}
		return c.serveHTTP(client, what, nil)
	}
	return refusal("neither HTTP nor TLS on a port that requires one of them")
}

func (c *crossing) serveTLS(client *countedConn, what fills) error {
	name, seen, err := helloName(client)
	if err != nil {
		return refusal("not a TLS handshake")
	}
	if err := c.checkName("TLS handshake", name); err != nil {
		return err
	}
	replay := client.replay(seen)
	_ = client.SetReadDeadline(time.Time{})
	if what.reads() {
		return c.intercept(replay, what)
	}
	host, err := c.dial(c.ctx)
	if err != nil {
		return err
	}
	return c.splice(replay, host)
}

// checkName compares a name on the wire with the allowed host. A handshake without a name is
// accepted. A policy that allows an address allows any name there.
func (c *crossing) checkName(where, name string) error {
	if name == "" || c.decision.Address {
		return nil
	}
	if canonical, ok := CanonicalName(name); !ok || canonical != c.target.Host {
		return refusal(fmt.Sprintf("the %s names another host: %s", where, clip(name)))
	}
	return nil
}

// relay forwards an unknown protocol, in which either end may send first. It inspects the
// client's first bytes before they are sent.
func (c *crossing) relay(client *countedConn, host net.Conn) (err error) {
	answered := make(chan []byte, 1)
	go func() {
		b := make([]byte, 4<<10)
		n, _ := host.Read(b)
		answered <- b[:n]
	}()
	spoke := make(chan byte, 1)
	go func() {
		if first, err := client.in.Peek(1); err == nil {
			spoke <- first[0]
		}
		close(spoke)
	}()
	var from net.Conn = client
	select {
	case <-c.ctx.Done():
		host.Close()
		return context.Cause(c.ctx)
	case b := <-answered: // empty if the host has closed
		_, _ = client.Write(b)
		from = &guardedConn{countedConn: client, in: client, spoke: spoke}
	case first := <-spoke:
		_ = host.SetReadDeadline(time.Unix(1, 0))
		b := <-answered
		_ = host.SetReadDeadline(time.Time{})
		switch v := c.sniff(client); {
		case v == isHTTP && len(b) == 0:
			return c.serveHTTP(client, fills{}, host)
		case v == isHTTP:
			err = errSpokeFirst
		default:
			from, err = c.inspect(client, first)
		}
		if err != nil {
			host.Close()
			return err
		}
		_, _ = client.Write(b)
	}
	return c.splice(from, host)
}

// sniff is looksLikeHTTP with a timeout: the client may wait for the host's answer before it
// sends more.
func (c *crossing) sniff(client *countedConn) verdict {
	_ = client.SetReadDeadline(time.Now().Add(sniffTime))
	defer client.SetReadDeadline(time.Time{})
	return looksLikeHTTP(client.in)
}

const errSpokeFirst = refusal("an HTTP request to a host that sent data first")

// inspect checks the name in a TLS handshake, and watches anything else for an HTTP request.
// It returns a connection that starts with the client's first byte. It refuses a handshake
// that it cannot parse, because a lenient host might.
func (c *crossing) inspect(client *countedConn, first byte) (net.Conn, error) {
	if first != recordHandshake {
		return &suspect{Conn: client}, nil
	}
	name, seen, err := helloName(client)
	if err == nil {
		err = c.checkName("TLS handshake", name)
	} else if len(seen) > 1 && seen[1] != tlsMajor {
		return &suspect{Conn: client.replay(seen)}, nil
	} else {
		err = refusal("a malformed TLS handshake")
	}
	if err != nil {
		return nil, err
	}
	return client.replay(seen), nil
}

// A guardedConn connection inspects the client's first bytes when they arrive.
type guardedConn struct {
	*countedConn
	in      net.Conn  // source of Read
	spoke   chan byte // receives the first byte, which is not consumed; closed after it
	checked bool
}

func (g *guardedConn) Read(p []byte) (int, error) {
	if !g.checked {
		g.checked = true
		if first, ok := <-g.spoke; ok {
			switch g.crossing.sniff(g.countedConn) {
			case isHTTP:
				return 0, errSpokeFirst
			default:
				conn, err := g.crossing.inspect(g.countedConn, first)
				if err != nil {
					return 0, err
				}
				g.in = conn
			}
		}
	}
	return g.in.Read(p)
}

// dial resolves the host and connects to an allowed address. The name is resolved once, so
// that the address checked is the address used.
func (c *crossing) dial(ctx context.Context) (net.Conn, error) {
	if c.decision.neighbour != nil {
		conn, err := c.dialNeighbour(ctx)
		if err == nil {
			c.reached(netip.Addr{}, "")
		}
		return conn, err
	}
	if via := c.gate.proxyFor(ctx, c.target); via != nil {
		conn, err := c.gate.reachThrough(ctx, via, c.decision, c.target)
		if err == nil {
			c.reached(netip.Addr{}, via.String())
		}
		return conn, err
	}
	conn, addr, err := c.gate.reach(ctx, c.decision, c.target)
	if err == nil {
		c.reached(addr, "")
	}
	return conn, err
}

// reached records the start of the connection, to an address or through a proxy, the first time it is called.
func (c *crossing) reached(a netip.Addr, via string) {
	c.recorded.Do(func() {
		c.flow.Addr, c.flow.Proxy = a, via
		c.gate.Traffic.allowed()
		opening := *c.flow
		opening.Opening, opening.Allowed, opening.Took = true, true, time.Since(opening.Started)
		c.gate.record(opening)
	})
}

func (g *Gate) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	if g.Lookup != nil {
		return g.Lookup(ctx, host)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	return net.DefaultResolver.LookupNetIP(ctx, "ip", queryName(host))
}

// queryName returns the name to look up for a host. A final dot keeps search domains away from
// a name with dots. A name without dots means what it means on this machine: its hosts file and
// search domains apply.
func queryName(host string) string {
	if strings.Contains(host, ".") {
		return host + "."
	}
	return host
}

func (g *Gate) dial(ctx context.Context, network string, addr netip.AddrPort) (net.Conn, error) {
	if g.Dial != nil {
		return g.Dial(ctx, network, addr)
	}
	return (&net.Dialer{Timeout: dialTime / 3}).DialContext(ctx, network, addr.String())
}

// splice copies in both directions until both have ended or been idle for idleTime.
func (c *crossing) splice(client, host net.Conn) error {
	defer host.Close()
	defer context.AfterFunc(c.ctx, func() { host.Close(); client.Close() })() // the guest may not read its end
	var both sync.WaitGroup
	var failed error
	both.Go(func() {
		failed = c.gate.copyIdle(host, client)
		if refused, ok := errors.AsType[refusal](failed); ok {
			failed = refused
			host.Close()
			return
		}
		_ = closeWrite(host)
	})
	both.Go(func() {
		_ = c.gate.copyIdle(client, host)
		_ = closeWrite(client)
	})
	both.Wait()
	return failed
}

// closeWrite signals the end of one direction. It closes a stream that has no such method.
func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return conn.Close()
}

// A countedConn connection is the sandbox's end of a crossing. It counts bytes, and reads through
// a buffer that may hold some input already.
type countedConn struct {
	net.Conn
	in       *bufio.Reader
	crossing *crossing
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.crossing.sent.Add(int64(n))
	c.crossing.gate.Traffic.moved(n, 0)
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		err = os.ErrDeadlineExceeded // TLS reads again only after a timeout that is temporary
	}
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.crossing.received.Add(int64(n))
	c.crossing.gate.Traffic.moved(0, n)
	return n, err
}

// CloseWrite signals the end of data to the sandbox.
func (c *countedConn) CloseWrite() error { return closeWrite(c.Conn) }

// replay returns a connection that yields seen, which was read from c, again.
func (c *countedConn) replay(seen []byte) net.Conn {
	c.crossing.sent.Add(-int64(len(seen)))
	c.crossing.gate.Traffic.moved(-len(seen), 0)
	return &countedConn{Conn: c.Conn, in: bufio.NewReader(io.MultiReader(bytes.NewReader(seen), c.in)),
		crossing: c.crossing}
}
