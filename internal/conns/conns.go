// Package conns limits the connections of an HTTP server: their total, those of one
// source address, and those without a valid API key.
//
// If a limit is reached, a new connection replaces one that waits for a request: the
// oldest without a key of the address that has the most of these. So clients with a key
// are served even if others open as many connections as they can. If no connection can
// be replaced, the new one is refused.
package conns

import (
	"bytes"
	"container/list"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/berth-run/berth/internal/nofile"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// Limits are maximum numbers of connections. All must be positive.
type Limits = nofile.Connections

const (
	// grace is the time for which a new connection that has sent data is not replaced.
	// When many clients connect at the same time, the server needs time to read their requests.
	grace = 2 * time.Second

	// idleTime is the idle timeout of connections without a key.
	idleTime = 20 * time.Second
)

// A Listener accepts connections within limits. It is safe for concurrent use.
type Listener struct {
	net.Listener
	limits Limits
	log    *slog.Logger
	often  *rate.Limiter // limits log lines

	mu         sync.Mutex
	sources    map[netip.Addr]*source
	total      int
	withoutKey int
	refused    int64
	closed     int64
}

// A source is the state of one source address. The lists hold the connections that can
// be replaced, the one that has waited longest first.
type source struct {
	total      int
	withoutKey int
	strangers  *list.List // without a key and without a running handler
	idle       *list.List // with a key, between two requests
}

// Limit returns a Listener that accepts the connections of l within limits.
func Limit(l net.Listener, limits Limits, log *slog.Logger) *Listener {
	return &Listener{Listener: l, limits: limits, log: log, often: rate.NewLimiter(rate.Every(10*time.Second), 1),
		sources: map[netip.Addr]*source{}}
}

// Counts are the counters of a Listener.
type Counts struct {
	WithKey, WithoutKey int   // connections now
	Refused             int64 // since the start
	Closed              int64 // replaced by new connections, since the start
}

// Counts returns the current counters.
func (l *Listener) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Counts{l.total - l.withoutKey, l.withoutKey, l.refused, l.closed}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(raw); c != nil {
			return c, nil
		}
	}
}

// refusal is the answer to a client whose connection is refused.
const refusal = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 143\r\n\r\n" +
	`{"error":{"message":"The server has too many connections. Try again later.","type":"server_error","param":null,"code":"too_many_connections"}}` + "\n"

// admit returns the connection for the server, or refuses it and returns nil.
func (l *Listener) admit(raw net.Conn) *Conn {
	c := &Conn{Conn: raw, listener: l, address: sourceOf(raw.RemoteAddr())}
	for {
		l.mu.Lock()
		victim, full := l.room(c.address)
		if full == "" {
			l.enter(c)
			l.mu.Unlock()
			return c
		}
		if victim == nil {
			l.refused++
			l.mu.Unlock()
			l.warn("refuse connection", full, c.address)
			_ = raw.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = raw.Write([]byte(refusal))
			raw.Close()
			return nil
		}
		if !victim.answered && time.Since(victim.since) < grace && (victim.unread() || victim.whole.Load()) {
			l.mu.Unlock()
			time.Sleep(time.Millisecond) // the server is behind; new connections wait in the kernel's queue
			continue
		}
		l.closed++
		l.remove(victim)
		l.mu.Unlock()
		l.warn("close idle connection", full, victim.address)
		victim.Conn.Close()
	}
}

func (l *Listener) warn(what, bound string, address netip.Addr) {
	if l.often.Allow() {
		n := l.Counts()
		l.log.Warn("connection limit reached", "action", what, "limit", bound, "address", address,
			"with_key", n.WithKey, "without_key", n.WithoutKey, "refused", n.Refused, "closed", n.Closed)
	}
}

// room returns the limit that a new connection of an address would exceed, or "", and
// the connection to close for it, or nil. l.mu must be held.
func (l *Listener) room(address netip.Addr) (victim *Conn, full string) {
	own := l.sources[address]
	switch {
	case own != nil && own.withoutKey >= l.limits.WithoutKeyAddress:
		full, victim = "without a key, of one address", first(own.strangers)
	case own != nil && own.total >= l.limits.PerAddress:
		full = "of one address"
		if victim = first(own.strangers); victim == nil {
			victim = first(own.idle)
		}
	case l.withoutKey >= l.limits.WithoutKey:
		full, victim = "without a key", l.heaviest(func(s *source) *list.List { return s.strangers })
	case l.total >= l.limits.Total:
		full = "in all"
		if victim = l.heaviest(func(s *source) *list.List { return s.strangers }); victim == nil {
			victim = l.heaviest(func(s *source) *list.List { return s.idle })
		}
	}
	return victim, full
}

// unread reports whether the connection has received data that the server has not read.
func (c *Conn) unread() (some bool) {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	seen := c.seen.Load() // load this before the system call, so that a concurrent Read counts as unread
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		some = err == nil && info.Bytes_received > seen
	})
	return some
}

// heaviest returns the first connection of the longest list. l.mu must be held.
func (l *Listener) heaviest(of func(*source) *list.List) *Conn {
	var most *list.List
	for _, s := range l.sources {
		if all := of(s); most == nil || all.Len() > most.Len() {
			most = all
		}
	}
	if most == nil {
		return nil
	}
	return first(most)
}

func first(l *list.List) *Conn {
	if e := l.Front(); e != nil {
		return e.Value.(*Conn)
	}
	return nil
}

// enter registers a connection. l.mu must be held.
func (l *Listener) enter(c *Conn) {
	s := l.sources[c.address]
	if s == nil {
		s = &source{strangers: list.New(), idle: list.New()}
		l.sources[c.address] = s
	}
	c.source, c.since = s, time.Now()
	c.in, c.place = s.strangers, s.strangers.PushBack(c)
	s.total++
	s.withoutKey++
	l.total++
	l.withoutKey++
}

// remove unregisters a connection. l.mu must be held.
func (l *Listener) remove(c *Conn) {
	if c.gone {
		return
	}
	c.gone = true
	c.busy()
	c.source.total--
	l.total--
	if !c.known {
		c.source.withoutKey--
		l.withoutKey--
	}
	if c.source.total == 0 {
		delete(l.sources, c.address)
	}
}

// sourceOf returns the address to which a connection counts. All addresses of an IPv6
// /64 network count as one.
func sourceOf(a net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}

// A Conn is an accepted connection. It counts until it is closed, even if a handler has
// hijacked it for another protocol.
type Conn struct {
	net.Conn
	listener *Listener
	address  netip.Addr

	whole atomic.Bool   // the header of the first request has been read
	tail  []byte        // last bytes read before whole is set; used by Read only
	seen  atomic.Uint64 // bytes that Read has returned

	// Guarded by listener.mu:
	source   *source
	since    time.Time // start of the wait for a request
	known    bool      // has sent a valid key
	answered bool      // a request has been answered
	hijacked bool
	gone     bool
	in       *list.List // the list that contains it; nil while a handler runs
	place    *list.Element
}

// busy marks a connection as not replaceable.
func (c *Conn) busy() {
	if c.in != nil {
		c.in.Remove(c.place)
		c.in, c.place = nil, nil
	}
}

// waits marks a connection as replaceable.
func (c *Conn) waits() {
	c.busy()
	if c.gone || c.hijacked {
		return
	}
	c.in = c.source.strangers
	if c.known {
		c.in = c.source.idle
	}
	c.since, c.answered = time.Now(), true
	c.place = c.in.PushBack(c)
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// Read implements net.Conn. It detects the end of the first request's header, after
// which the server starts a handler.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && !c.whole.Load() {
		c.tail = append(c.tail, p[:n]...)
		if bytes.Contains(c.tail, []byte("\n\r\n")) || bytes.Contains(c.tail, []byte("\n\n")) {
			c.whole.Store(true)
			c.tail = nil
		} else {
			c.tail = append(c.tail[:0], c.tail[max(0, len(c.tail)-2):]...)
		}
	}
	c.seen.Add(uint64(n))
	return n, err
}

// SetReadDeadline implements net.Conn. It shortens the deadline of a connection without
// a key to idleTime.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.listener.mu.Lock()
	short := !c.known && !c.hijacked
	c.listener.mu.Unlock()
	if most := time.Now().Add(idleTime); short && t.After(most) {
		t = most
	}
	return c.Conn.SetReadDeadline(t)
}

// CloseWrite closes the connection for writing, if possible, or for all.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

type connKey struct{}

// below returns the connection below TLS.
func below(c net.Conn) net.Conn {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c
}

// Attach sets hooks of s that track the state of connections. s must serve on l and have
// its handler set already.
func (l *Listener) Attach(s *http.Server) {
	handler := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
			l.locked(c.busy)
			defer l.locked(func() {
				if !c.known { // a connection with a key waits for StateIdle: its answer may not be sent yet
					c.waits()
				}
			})
		}
		handler.ServeHTTP(w, r)
	})
	s.ConnContext = func(ctx context.Context, raw net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, below(raw))
	}
	s.ConnState = func(raw net.Conn, state http.ConnState) {
		c, ok := below(raw).(*Conn)
		if !ok {
			return
		}
		switch state {
		case http.StateIdle:
			l.locked(c.waits)
		case http.StateActive: // the first bytes of a request have arrived
			l.locked(func() {
				if c.known {
					c.busy()
				}
			})
		case http.StateHijacked:
			l.locked(func() {
				c.hijacked = true
				c.busy()
			})
		}
	}
}

func (l *Listener) locked(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// Known marks the connection of a request's context as one with a valid key. Callers
// use it also if the server requires no key.
func Known(ctx context.Context) {
	c, ok := ctx.Value(connKey{}).(*Conn)
	if !ok {
		return
	}
	c.listener.locked(func() {
		if !c.known && !c.gone {
			c.known = true
			c.source.withoutKey--
			c.listener.withoutKey--
		}
	})
}
