// Package conns bounds the connections of an HTTP server: in all, of one source address,
// and of those whose requests have not shown a valid key.
//
// Where a bound is met, a connection that waits for a request gives way to a new one:
// the oldest without a key, of the address that has the most of them. So a client with
// a key is served while others open as many connections as they can. If there is none to
// give way, the new connection is refused.
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

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// Limits are the bounds. All are needed.
type Limits struct {
	Total             int // connections
	PerAddress        int // of one source address
	WithoutKey        int // that have not shown a valid key
	WithoutKeyAddress int // of one source address that have not
}

// maxTotal is the most that DefaultLimits allow.
const maxTotal = 1 << 16

// DefaultLimits are those of a process that may have a number of files open: half of
// them may be connections, and half of these without a key. What a request needs besides
// has the other half.
func DefaultLimits(files int) Limits {
	total := max(min(files/2, maxTotal), 8)
	return Limits{Total: total, PerAddress: max(total*3/4, 4), WithoutKey: max(total/2, 4), WithoutKeyAddress: max(total/4, 2)}
}

const (
	// grace is how long a connection without a key that has sent something is waited for,
	// if others want its place: the requests of clients that come at once are not read at
	// once.
	grace = 2 * time.Second

	// idleTime is how long a connection without a key may wait for its next request.
	idleTime = 20 * time.Second
)

// A Listener accepts connections within limits. It is safe for concurrent use.
type Listener struct {
	net.Listener
	limits Limits
	log    *slog.Logger
	often  *rate.Limiter // of the log

	mu         sync.Mutex
	sources    map[netip.Addr]*source
	total      int
	withoutKey int
	refused    int64
	closed     int64
}

// A source is what one address has. The lists hold the connections that may give way,
// the one that has waited longest first.
type source struct {
	total      int
	withoutKey int
	strangers  *list.List // without a key, and no handler serves them
	idle       *list.List // with a key, between two requests
}

// Limit returns a listener on l.
func Limit(l net.Listener, limits Limits, log *slog.Logger) *Listener {
	return &Listener{Listener: l, limits: limits, log: log, often: rate.NewLimiter(rate.Every(10*time.Second), 1), sources: map[netip.Addr]*source{}}
}

// Counts are the figures of a listener.
type Counts struct {
	WithKey, WithoutKey int   // connections now
	Refused             int64 // since the start
	Closed              int64 // to make room, since the start
}

// Counts returns the figures.
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

// refusal is the answer on a connection that is refused.
const refusal = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 143\r\n\r\n" +
	`{"error":{"message":"The server has too many connections. Try again later.","type":"server_error","param":null,"code":"too_many_connections"}}` + "\n"

// admit returns the connection as the server gets it, or closes it and returns nil.
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
			l.warn("refused a connection", full, c.address)
			_ = raw.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = raw.Write([]byte(refusal))
			raw.Close()
			return nil
		}
		if !victim.answered && time.Since(victim.since) < grace && (victim.unread() || victim.whole.Load()) {
			l.mu.Unlock()
			time.Sleep(time.Millisecond) // the server is behind; what comes meanwhile waits in the kernel
			continue
		}
		l.closed++
		l.leave(victim)
		l.mu.Unlock()
		l.warn("closed a connection that waits for a request", full, victim.address)
		victim.Conn.Close()
	}
}

func (l *Listener) warn(what, bound string, address netip.Addr) {
	if l.often.Allow() {
		n := l.Counts()
		l.log.Warn("the server has as many connections as it may", "action", what, "bound", bound, "address", address,
			"with_key", n.WithKey, "without_key", n.WithoutKey, "refused", n.Refused, "closed", n.Closed)
	}
}

// room reports which bound, if any, a new connection of an address would break, and which
// connection is to give way to it, nil for none. l.mu is held.
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

// unread reports whether something has come on a connection that the server has not seen.
func (c *Conn) unread() (some bool) {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	seen := c.seen.Load() // before the kernel is asked: what is read meanwhile was not seen
	_ = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		some = err == nil && info.Bytes_received > seen
	})
	return some
}

// heaviest returns the first connection of the longest list. l.mu is held.
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

// enter counts a connection. l.mu is held.
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

// leave counts a connection no longer. l.mu is held.
func (l *Listener) leave(c *Conn) {
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

// sourceOf returns the address that a connection counts for: an IPv6 client has a whole
// /64.
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

// A Conn is an accepted connection. It counts until it is closed, also if a handler has
// taken it over for another protocol.
type Conn struct {
	net.Conn
	listener *Listener
	address  netip.Addr

	whole atomic.Bool   // the header of its first request has been read
	tail  []byte        // of what was read until then; of Read
	seen  atomic.Uint64 // bytes that Read has returned and looked at

	// Of listener.mu:
	source   *source
	since    time.Time // when it began to wait
	known    bool      // it has shown a key
	answered bool      // a request of it has been answered
	hijacked bool
	gone     bool
	in       *list.List // that it is in; nil while a handler serves it
	place    *list.Element
}

// busy takes a connection out of the list of those that may give way.
func (c *Conn) busy() {
	if c.in != nil {
		c.in.Remove(c.place)
		c.in, c.place = nil, nil
	}
}

// waits puts a connection into the list of those that may give way.
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
	c.listener.leave(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// Read implements net.Conn. It looks for the end of the first request's header, after
// which a handler is about to serve it.
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

// SetReadDeadline implements net.Conn. A connection without a key does not wait as long
// for its next request as another.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.listener.mu.Lock()
	short := !c.known && !c.hijacked
	c.listener.mu.Unlock()
	if most := time.Now().Add(idleTime); short && t.After(most) {
		t = most
	}
	return c.Conn.SetReadDeadline(t)
}

// CloseWrite tells the other end that nothing more comes.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

type connKey struct{}

// Attach has a server, which is to serve on l, tell what its connections do. It must be
// called once its handler is set.
func (l *Listener) Attach(s *http.Server) {
	handler := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
			l.locked(c.busy)
			defer l.locked(func() {
				if !c.known { // of others the answer may not be on its way yet
					c.waits()
				}
			})
		}
		handler.ServeHTTP(w, r)
	})
	s.ConnContext = func(ctx context.Context, raw net.Conn) context.Context { return context.WithValue(ctx, connKey{}, raw) }
	s.ConnState = func(raw net.Conn, state http.ConnState) {
		c, ok := raw.(*Conn)
		if !ok {
			return
		}
		switch state {
		case http.StateIdle:
			l.locked(c.waits)
		case http.StateActive: // a request has begun to come
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

// Known says that the connection of a request's context has shown a valid key, or needs
// none.
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
