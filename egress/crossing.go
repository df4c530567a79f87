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
	ctx      context.Context // of the sandbox's connection
	gate     *Gate
	target   Target
	decision Decision
	flow     *Flow
	begun    sync.Once
	answered bool            // in HTTP, which says what went wrong
	used     map[string]bool // names of secrets that were filled in

	sent, received atomic.Int64
}

// dialsFirst reports whether the host is dialled before the sandbox is connected. Otherwise
// the client must first send a name, which is compared.
func (c *crossing) dialsFirst() bool {
	return c.target.UDP || c.target.Port != 443 && c.target.Port != 80 && len(c.gate.secretsFor(c.target.Host)) == 0
}

// serve carries the connection by what its client says first. Where a name is on
// the wire, it must be the one that was allowed. host is the connection to the host, if
// it is dialled first.
func (c *crossing) serve(client *counted, host net.Conn) error {
	if c.target.UDP {
		return c.serveDatagrams(client, host)
	}
	if host != nil {
		return c.relay(client, host)
	}
	secrets := c.gate.secretsFor(c.target.Host)
	_ = client.SetReadDeadline(time.Now().Add(firstTime))
	first, err := client.in.Peek(1)
	if err != nil {
		return err
	}
	switch {
	case first[0] == recordHandshake && c.target.Port != 80:
		return c.serveTLS(client, secrets)
	case c.target.Port == 443:
		return refusal("not TLS on port 443")
	case looksLikeHTTP(client.in) == isHTTP:
		if !c.decision.Private {
			secrets = nil // who carries the request could read them
		}
		return c.serveHTTP(client, secrets, nil)
	}
	return refusal("neither HTTP nor TLS where one of them must be")
}

func (c *crossing) serveTLS(client *counted, secrets []Secret) error {
	name, seen, err := helloName(client)
	if err != nil {
		return refusal("not a TLS handshake")
	}
	if err := c.checkName("TLS handshake", name); err != nil {
		return err
	}
	replay := client.replay(seen)
	_ = client.SetReadDeadline(time.Time{})
	if len(secrets) > 0 {
		return c.intercept(replay, secrets)
	}
	host, err := c.dial(c.ctx)
	if err != nil {
		return err
	}
	return c.splice(replay, host)
}

// checkName compares a name on the wire with the one that was allowed. A handshake
// without a name is that of the address itself. Who was allowed an address is
// allowed what is there, by whatever name.
func (c *crossing) checkName(where, name string) error {
	if name == "" || c.decision.Address {
		return nil
	}
	if canonical, ok := CanonicalName(name); !ok || canonical != c.target.Host {
		return refusal(fmt.Sprintf("the %s names another host: %s", where, clip(name)))
	}
	return nil
}

// relay carries a protocol that is not known, whose host may be the one that
// speaks first. What the client says first is looked at before it goes out.
func (c *crossing) relay(client *counted, host net.Conn) (err error) {
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
	case b := <-answered: // also when the host has closed
		_, _ = client.Write(b)
		from = &guarded{counted: client, in: client, spoke: spoke}
	case first := <-spoke:
		_ = host.SetReadDeadline(time.Unix(1, 0))
		b := <-answered
		_ = host.SetReadDeadline(time.Time{})
		switch v := c.sniff(client); {
		case v == isHTTP && len(b) == 0:
			return c.serveHTTP(client, nil, host)
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

// sniff is looksLikeHTTP for a client that may wait for its host's answer before it sends
// more.
func (c *crossing) sniff(client *counted) verdict {
	_ = client.SetReadDeadline(time.Now().Add(sniffTime))
	defer client.SetReadDeadline(time.Time{})
	return looksLikeHTTP(client.in)
}

const errSpokeFirst = refusal("a request to a host that spoke first")

// inspect checks the name in a TLS handshake, if the client begins with one, and
// watches anything else for a request. It returns the connection with nothing read. A
// handshake that cannot be read here, a lenient host may still read.
func (c *crossing) inspect(client *counted, first byte) (net.Conn, error) {
	if first != recordHandshake {
		return &suspect{Conn: client}, nil
	}
	name, seen, err := helloName(client)
	if err == nil {
		err = c.checkName("TLS handshake", name)
	} else if len(seen) > 1 && seen[1] != tlsMajor {
		return &suspect{Conn: client.replay(seen)}, nil
	} else {
		err = refusal("a TLS handshake that cannot be read")
	}
	if err != nil {
		return nil, err
	}
	return client.replay(seen), nil
}

// A guarded connection inspects what its client says first, when it does.
type guarded struct {
	*counted
	in      net.Conn  // to read from
	spoke   chan byte // the first byte, which is not yet read; closed after it
	checked bool
}

func (g *guarded) Read(p []byte) (int, error) {
	if !g.checked {
		g.checked = true
		if first, ok := <-g.spoke; ok {
			switch g.crossing.sniff(g.counted) {
			case isHTTP:
				return 0, errSpokeFirst
			default:
				conn, err := g.crossing.inspect(g.counted, first)
				if err != nil {
					return 0, err
				}
				g.in = conn
			}
		}
	}
	return g.in.Read(p)
}

// dial finds the host's addresses, and connects to one that may be dialled. The
// name is not looked up again: what was checked is what is used.
func (c *crossing) dial(ctx context.Context) (net.Conn, error) {
	conn, addr, err := c.gate.reach(ctx, c.decision, c.target)
	if err == nil {
		c.reached(addr)
	}
	return conn, err
}

// reached tells of the connection, at its first host.
func (c *crossing) reached(a netip.Addr) {
	c.begun.Do(func() {
		c.flow.Addr = a
		c.gate.Traffic.allowed()
		begins := *c.flow
		begins.Begins, begins.Allowed, begins.Took = true, true, time.Since(begins.Began)
		c.gate.record(begins)
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
	return net.DefaultResolver.LookupNetIP(ctx, "ip", lookedUp(host))
}

// lookedUp returns how a name is asked for. One with a dot is whole; with its final dot the
// host's search domains do not complete it. One without is what it is on this machine: in
// its list of hosts, in its search domains.
func lookedUp(host string) string {
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

// splice copies both ways until both are done, or nothing has moved for long.
func (c *crossing) splice(client, host net.Conn) error {
	defer host.Close()
	defer context.AfterFunc(c.ctx, func() { client.Close(); host.Close() })()
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

// closeWrite tells one end that nothing more comes. Of a stream without such a method
// Close does that.
func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return conn.Close()
}

// A counted connection is the sandbox's end, of whose input some may be in a
// buffer already.
type counted struct {
	net.Conn
	in       *bufio.Reader
	crossing *crossing
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.crossing.sent.Add(int64(n))
	c.crossing.gate.Traffic.moved(n, 0)
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		err = os.ErrDeadlineExceeded // yamux's is not temporary: TLS would not read on after it
	}
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.crossing.received.Add(int64(n))
	c.crossing.gate.Traffic.moved(0, n)
	return n, err
}

// CloseWrite tells the sandbox that nothing more comes.
func (c *counted) CloseWrite() error { return closeWrite(c.Conn) }

// replay returns the connection with bytes put back that were read from it.
func (c *counted) replay(seen []byte) net.Conn {
	c.crossing.sent.Add(-int64(len(seen)))
	c.crossing.gate.Traffic.moved(-len(seen), 0)
	return &counted{Conn: c.Conn, in: bufio.NewReader(io.MultiReader(bytes.NewReader(seen), c.in)), crossing: c.crossing}
}
