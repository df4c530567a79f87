package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth/egress/mint"
	"github.com/berth-run/berth/egress/proxy"
)

const (
	dialTime   = 15 * time.Second // to find and reach a host, over all of its addresses
	firstTime  = 30 * time.Second // for the first bytes of a client that must send first
	sniffTime  = time.Second      // to recognize HTTP
	idleTime   = 30 * time.Minute // without a byte in either direction
	lookupTime = 10 * time.Second

	// MaxConnections bounds the open connections of a container.
	MaxConnections = 512
)

// A Gate connects one container to the network. It serves two requests of the container's
// guest: GET /resolve?name= reports whether a name is allowed, and CONNECT host:port connects,
// or exchanges datagrams (see ProtocolHeader). A connection ends with the context of its
// request. A Gate is safe for concurrent use.
type Gate struct {
	Policy  *Policy
	Secrets []Secret
	CA      *Authority // signs certificates for hosts with secrets or transforms; required if there are any

	Transforms []Transform
	// Value returns the present value of a stored secret that a transform names, or ErrNoSecret. It is called for each
	// request that needs it. Nil: none are stored.
	Value func(ctx context.Context, name string) (string, error)

	// Tokens returns the source of the tokens of a secret with a Mint. Required if there is one.
	Tokens func(Secret) *mint.Source

	// Record receives a Flow when a connection has reached its host, before any byte is
	// sent; when the connection ends; and for each refusal. It may be nil. A connection
	// waits for it to return.
	Record  func(Flow)
	Traffic *Traffic // counters; may be nil
	Slots   *Slots   // shared with the gates of other containers; nil means no bound

	Roots  *x509.CertPool // verify hosts with secrets; nil means the system's
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial   func(ctx context.Context, network string, addr netip.AddrPort) (net.Conn, error)
	Own    func(netip.Addr) bool // reports an address of this machine; nil means Own

	// Proxy returns the proxy through which a host and a port are reached, or nil. Nil: there are no proxies. A proxy
	// resolves names, so it must refuse those that lead to private addresses.
	Proxy func(ctx context.Context, address string) *proxy.Server

	// Neighbours returns the container with a name in the group of this gate's container, or ErrNoNeighbour. A name of
	// the group beats the same name in the policy. Nil: the container is in no group.
	Neighbours func(ctx context.Context, name string) (*Neighbour, error)

	connections atomic.Int64
	lent        atomic.Int64 // borrowed large buffers
	masked      struct {
		once sync.Once
		mask *mask
		keys struct { // of access keys
			once sync.Once
			mask *mask
		}
		mu     sync.Mutex
		stored []Secret // with their values, the least recently filled in first
	}
	live struct { // the connections, so that End can end them
		mu    sync.Mutex
		conns map[net.Conn]context.CancelFunc
		ended bool
	}
	large struct { // large bodies held in memory while they are filled in
		init   sync.Once
		places chan struct{}
	}
}

// mask returns the mask for all of the gate's secrets. hideValue adds to it.
func (g *Gate) mask() *mask {
	g.masked.once.Do(func() { g.masked.mask = newMask(g.Secrets) })
	return g.masked.mask
}

// maxStored bounds the values of stored secrets that a gate masks: a secret may be replaced often.
const maxStored = 64

// hideValue masks a value in all that is not yet sent to the sandbox. A value that has been replaced stays masked: a
// host may answer with it later.
func (g *Gate) hideValue(s Secret) {
	m := g.mask()
	g.masked.mu.Lock()
	defer g.masked.mu.Unlock()
	all := &g.masked.stored
	same := func(o Secret) bool { return o.Value == s.Value }
	if n := len(*all); n > 0 && same((*all)[n-1]) {
		return
	}
	known := slices.ContainsFunc(*all, same)
	*all = append(slices.DeleteFunc(*all, same), s)
	if known {
		return
	}
	if len(*all) > maxStored {
		*all = slices.Delete(*all, 0, 1)
	}
	m.words.Store(newWords(slices.Concat(g.Secrets, *all)))
}

func (g *Gate) own(a netip.Addr) bool {
	if g.Own != nil {
		return g.Own(a)
	}
	return Own(a)
}

// A Flow describes one connection or refusal, for audit and metering. It holds no content.
type Flow struct {
	Target   Target
	Opening  bool // the connection has just reached its host; another Flow follows at its end
	Allowed  bool
	Reason   string     // the rule that allowed it, or the reason for the refusal
	Addr     netip.Addr // the dialled address; invalid if the host was not reached, or through a proxy
	Proxy    string     // address of the proxy through which the host was reached
	Secrets  []string   // names of the secrets that were filled in, sorted
	Started  time.Time
	Took     time.Duration
	Sent     int64 // bytes toward the host
	Received int64
}

// ServeHTTP serves the guest's requests.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		g.connect(w, r)
	case r.Method == http.MethodGet && r.URL.Path == "/resolve":
		g.resolve(w, r)
	default:
		http.NotFound(w, r)
	}
}

// resolve answers 204 for a name that is allowed on any port, else 403. It does not look the
// name up: an allowed name is resolved only when it is dialled, and a refused one never.
func (g *Gate) resolve(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if g.resolveNeighbour(w, r, name) {
		return
	}
	if !g.Policy.Names(name) {
		g.refused(Flow{Target: Target{Host: clip(name)}, Reason: "the name is not allowed", Started: time.Now()})
		http.Error(w, "the name is not allowed", http.StatusForbidden)
		return
	}
	writeLookup(w, lookupAnswer{Ports: g.Policy.Ports()})
}

// A lookupAnswer is the answer to the lookup of an allowed name.
type lookupAnswer struct {
	Ports     []int `json:"ports"`               // at which it may be reached
	Neighbour bool  `json:"neighbour,omitempty"` // it is one, at all ports
}

func writeLookup(w http.ResponseWriter, answer lookupAnswer) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// connect serves one connection from the sandbox.
func (g *Gate) connect(w http.ResponseWriter, r *http.Request) {
	flow := Flow{Started: time.Now()}
	defer func() {
		flow.Took = time.Since(flow.Started)
		if flow.Allowed {
			g.record(flow)
			return
		}
		g.refused(flow)
	}()
	target, decision, ok := g.decide(w, r, &flow)
	if !ok {
		return
	}
	release, ok := g.admit(w, &flow)
	defer release()
	if !ok {
		return
	}
	defer g.Traffic.opened()()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	c := &crossing{ctx: ctx, gate: g, target: target, decision: decision, flow: &flow, used: map[string]bool{}}
	var host net.Conn
	if c.dialsFirst() {
		var err error
		if host, err = c.dial(c.ctx); err != nil {
			flow.unreached(w, err)
			return
		}
		defer host.Close()
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	if !g.enter(conn, cancel) {
		flow.Reason = "the policy has changed"
		reset(conn)
		return
	}
	defer g.leave(conn)
	if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	// The server's own reader must not be used: EOF or a timeout in it ends the request.
	first, _ := buffered.Reader.Peek(buffered.Reader.Buffered())
	err = c.serve(&countedConn{Conn: conn, in: bufio.NewReader(io.MultiReader(bytes.NewReader(first), conn)),
		crossing: c},
		host)
	if err != nil && !c.answered {
		reset(conn)
	}
	flow.Sent, flow.Received, flow.Secrets = c.sent.Load(), c.received.Load(), slices.Sorted(maps.Keys(c.used))
	if refused, ok := errors.AsType[refusal](err); ok {
		flow.Reason = string(refused)
	} else {
		flow.Allowed = true
	}
}

// End ends all connections of the gate, and those that begin later. Another gate takes its place. It does
// not wait for a guest that reads nothing.
func (g *Gate) End() {
	g.live.mu.Lock()
	conns := g.live.conns
	g.live.ended, g.live.conns = true, nil
	g.live.mu.Unlock()
	for _, cancel := range conns {
		cancel()
	}
	for conn := range conns {
		go func() {
			reset(conn)
			conn.Close()
		}()
	}
}

func (g *Gate) over() bool {
	g.live.mu.Lock()
	defer g.live.mu.Unlock()
	return g.live.ended
}

// enter registers a connection for End, unless the gate has ended.
func (g *Gate) enter(conn net.Conn, cancel context.CancelFunc) bool {
	g.live.mu.Lock()
	defer g.live.mu.Unlock()
	if g.live.ended {
		return false
	}
	if g.live.conns == nil {
		g.live.conns = map[net.Conn]context.CancelFunc{}
	}
	g.live.conns[conn] = cancel
	return true
}

func (g *Gate) leave(conn net.Conn) {
	g.live.mu.Lock()
	defer g.live.mu.Unlock()
	delete(g.live.conns, conn)
}

// decide parses the target of a connection and decides whether the policy allows it. If
// it returns false, it has answered the request.
func (g *Gate) decide(w http.ResponseWriter, r *http.Request, flow *Flow) (Target, Decision, bool) {
	target, ok := parseTarget(r.Host)
	target.UDP = r.Header.Get(ProtocolHeader) == "udp"
	flow.Target = target
	flow.Target.Host = clip(target.Host)
	if !ok {
		flow.Reason = "not a host and a port"
		http.Error(w, flow.Reason, http.StatusBadRequest)
		return target, Decision{}, false
	}
	d, done := g.decideNeighbour(r.Context(), target)
	if !done {
		d = Decide(g.Policy, target)
	}
	if g.over() {
		d = Decision{Reason: "the policy has changed"}
	}
	flow.Reason = d.Reason
	if !d.Allow {
		http.Error(w, d.Reason, http.StatusForbidden)
	}
	return target, d, d.Allow
}

// admit acquires a slot for a connection. If the container, or all containers together, have
// too many, it answers the request and returns false. The caller must call release in either
// case.
func (g *Gate) admit(w http.ResponseWriter, flow *Flow) (release func(), ok bool) {
	own := g.connections.Add(1)
	if own <= MaxConnections && g.Slots.acquire(own) {
		return func() { g.Slots.release(); g.connections.Add(-1) }, true
	}
	flow.Reason = "too many connections"
	if own <= MaxConnections {
		flow.Reason = "too many connections from all containers"
	}
	http.Error(w, flow.Reason, http.StatusTooManyRequests)
	return func() { g.connections.Add(-1) }, false
}

// unreached answers a request whose host could not be dialled, and records the reason.
func (f *Flow) unreached(w http.ResponseWriter, err error) {
	if refused, ok := errors.AsType[refusal](err); ok {
		f.Reason = string(refused)
		http.Error(w, f.Reason, http.StatusForbidden)
		return
	}
	f.Allowed = true
	http.Error(w, "cannot reach the host", http.StatusBadGateway)
}

// reset aborts a connection, so that a client that is still sending notices immediately.
func reset(conn net.Conn) {
	if r, ok := conn.(interface{ Reset() error }); ok {
		_ = r.Reset()
	}
}

func (g *Gate) record(f Flow) {
	if g.Record != nil {
		g.Record(f)
	}
}

func (g *Gate) refused(f Flow) {
	g.Traffic.refused()
	g.record(f)
}

func parseTarget(s string) (Target, bool) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return Target{Host: s}, false
	}
	n, err := strconv.Atoi(port)
	if name, ok := CanonicalName(host); ok {
		host = name
	} else if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.Unmap().WithZone("").String()
	}
	return Target{Host: host, Port: n}, err == nil
}

// clip bounds text from a guest, which may be hostile, for logs.
func clip(s string) string {
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return s
}

// A refusal is the reason to end a connection that Decide allowed.
type refusal string

func (r refusal) Error() string { return string(r) }
