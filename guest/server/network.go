package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
	"github.com/berth-run/berth/guest/mux"
	"github.com/berth-run/berth/guest/route"
)

const (
	// maxNames is the number of names that a sandbox may look up. Each needs an address and
	// its listeners.
	maxNames = 512
	// maxPorts is the number of ports of a name that get a listener.
	maxPorts = 32
	// outTime bounds a request to the server: for a name, a connection.
	outTime = 30 * time.Second
)

// firstAddr is the first address mapped to an outside name. Loopback addresses below
// 127.8.0.0 are left for the sandbox's own use.
var firstAddr = netip.MustParseAddr("127.8.0.1")

// firstNear is the first address of neighbours on the route. It is in a range for measuring networks (RFC 2544), which
// no host has.
var firstNear = netip.MustParseAddr("198.18.0.1")

// network connects the sandbox to the outside. There is no network card: a name that the
// Berth server allows gets an address on the loopback, and connections to that are
// forwarded to the server as streams. Only the server decides.
type network struct {
	server *Server

	mu    sync.Mutex
	out   *mux.Session // to the Berth server; nil while there is none
	names map[string]*outsider
	near  map[netip.Addr]string // names of neighbours, by their addresses on the route
	begun bool
	route *route.Route // for addresses; nil if there is none
	slept bool         // the guest sleeps: no route may be created
}

// An outsider is an outside name with an address: on the loopback, or on the route for a neighbour, of which all ports
// may be reached.
type outsider struct {
	name  string
	addr  netip.Addr
	near  bool // a neighbour
	ports []int
}

type sessionKey struct{}

// SetNetwork implements berth.guest.v1.Guest.
func (s *Server) SetNetwork(ctx context.Context,
	req *connect.Request[v1.SetNetworkRequest]) (*connect.Response[v1.SetNetworkResponse], error) {
	session, _ := ctx.Value(sessionKey{}).(*mux.Session)
	if session == nil || os.Getpid() != 1 {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("this guest has no sandbox of its own"))
	}
	for name, value := range req.Msg.Environment {
		if os.Getenv(name) != value { // this sandbox may be restored from another's memory
			s.shell.state.outdated()
		}
		if err := os.Setenv(name, value); err != nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("environment variable %q: %w", name,
				err))
		}
	}
	if err := trust(req.Msg.Authorities, s.opts.StateDir); err != nil {
		return nil, err
	}
	if err := s.network.open(session); err != nil {
		return nil, err
	}
	answer := &v1.SetNetworkResponse{}
	if req.Msg.Addresses {
		if err := s.network.openRoute(); err != nil {
			answer.Unroutable = err.Error()
		}
	}
	return connect.NewResponse(answer), nil
}

// openRoute creates the route for addresses.
func (n *network) openRoute() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.slept {
		return errAsleep // a request that came before the sleep is still being served
	}
	if n.route != nil {
		return nil
	}
	to, err := route.Open(route.Out{
		Connect: func(to netip.AddrPort, datagrams bool) (net.Conn, error) {
			return n.connect(n.target(to), datagrams)
		},
		Carry: splice,
	})
	if err == nil {
		n.route = to
	}
	return err
}

var errAsleep = errors.New("the guest sleeps")

// fallAsleep removes the route for addresses, which gVisor cannot write to a file. Until awake is called, none is
// created. The sessions have ended, so that connections that wait for the server are refused.
func (n *network) fallAsleep() error {
	n.mu.Lock()
	n.slept = true
	closing := n.route
	n.route = nil
	n.mu.Unlock() // connections that are being refused need it
	if closing == nil {
		return nil
	}
	return errors.Join(closing.Refuse(), closing.Close())
}

// awake allows a route again. The server, which reconnects, asks for one.
func (n *network) awake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slept = false
}

// open uses session for the connections to the outside, and starts to answer lookups.
func (n *network) open(session *mux.Session) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.out = session
	if n.begun {
		return nil
	}
	if err := setResolver("/etc/resolv.conf"); err != nil {
		return err
	}
	if err := n.serveDNS(); err != nil {
		return err
	}
	n.begun = true
	return nil
}

// stream opens a stream to the Berth server.
func (n *network) stream(ctx context.Context) (*mux.Stream, error) {
	n.mu.Lock()
	session := n.out
	n.mu.Unlock()
	if session == nil || session.Ended() {
		return nil, errors.New("the Berth server is not connected")
	}
	return session.Open(ctx)
}

// target returns the destination of a connection on the route: a neighbour by its name, or an address.
func (n *network) target(to netip.AddrPort) string {
	n.mu.Lock()
	name, near := n.near[to.Addr()]
	n.mu.Unlock()
	if near {
		return net.JoinHostPort(name, strconv.Itoa(int(to.Port())))
	}
	return to.String()
}

// resolve returns the address for a name, if the server allows the name. An error means that the
// server did not answer.
func (n *network) resolve(ctx context.Context, name string) (addr netip.Addr, allowed bool, err error) {
	n.mu.Lock()
	o, full := n.names[name], len(n.names) >= maxNames
	settled := o != nil && (!o.near || n.near[o.addr] != "")
	n.mu.Unlock()
	if settled {
		return o.addr, true, nil
	}
	if full && o == nil {
		return addr, false, errors.New("too many names")
	}
	answer, err := n.ask(ctx, name)
	if err != nil || answer == nil || len(answer.Ports) == 0 && !answer.Neighbour {
		return addr, false, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if o = n.names[name]; o == nil {
		o = &outsider{name: name, addr: nth(firstAddr, len(n.names))}
	}
	o.near = o.near || answer.Neighbour
	if answer.Neighbour && n.route != nil {
		if n.near[o.addr] == "" {
			o.addr = nth(firstNear, len(n.near))
			n.near[o.addr] = name
		}
	} else if err := n.listen(o, answer.Ports); err != nil {
		return addr, false, err
	}
	n.names[name] = o
	return o.addr, true, nil
}

// nth returns the i-th address after a.
func nth(a netip.Addr, i int) netip.Addr {
	b := a.As4()
	v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	v += uint32(i)
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// A nameAnswer is the server's answer for a name.
type nameAnswer struct {
	Ports     []int // at which it may be reached
	Neighbour bool  // a container of the same group: all ports, if there is a route
}

// ask asks the server for a name. It returns nil if the server does not allow it.
func (n *network) ask(ctx context.Context, name string) (*nameAnswer, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			stream, err := n.stream(ctx)
			if err != nil {
				return nil, err // not stream: a nil *Stream in a net.Conn is not nil
			}
			return stream, nil
		}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/resolve?name="+url.QueryEscape(name),
		nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusServiceUnavailable {
		return nil, errors.New(resp.Status)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, nil
	}
	var answer nameAnswer
	err = json.NewDecoder(io.LimitReader(resp.Body, 4<<10)).Decode(&answer)
	if err != nil {
		return nil, fmt.Errorf("decode ports: %w", err)
	}
	answer.Ports = answer.Ports[:min(len(answer.Ports), maxPorts)]
	return &answer, nil
}

// listen accepts the connections to a name at ports, beside those at which it does. n.mu is held.
func (n *network) listen(o *outsider, ports []int) error {
	ports = slices.DeleteFunc(slices.Clone(ports), func(p int) bool { return slices.Contains(o.ports, p) })
	ports = ports[:min(len(ports), maxPorts-len(o.ports))]
	var listeners []net.Listener
	for _, port := range ports {
		l, err := net.Listen("tcp", netip.AddrPortFrom(o.addr, uint16(port)).String())
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return err
		}
		listeners = append(listeners, l)
	}
	for i, l := range listeners {
		go n.accept(l, net.JoinHostPort(o.name, strconv.Itoa(ports[i])))
	}
	o.ports = append(o.ports, ports...)
	return nil
}

func (n *network) accept(l net.Listener, target string) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(50 * time.Millisecond) // out of descriptors, for example
			continue
		}
		go n.carry(conn.(*net.TCPConn), target)
	}
}

// Buffers of idle connections are small. Those of busy ones are large, because each write
// is a frame, which costs gVisor the same whatever its size.
const (
	quietBuffer = 4 << 10
	busyBuffer  = 256 << 10
)

var busy = sync.Pool{New: func() any { b := make([]byte, busyBuffer); return &b }}

// pump copies until the end or an error.
func pump(to io.Writer, from io.Reader) error {
	quiet, large := make([]byte, quietBuffer), (*[]byte)(nil)
	defer func() {
		if large != nil {
			busy.Put(large)
		}
	}()
	buf := quiet
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		switch {
		case n < quietBuffer && large != nil:
			busy.Put(large)
			buf, large = quiet, nil
		case n >= quietBuffer && large == nil:
			large = busy.Get().(*[]byte)
			buf = *large
		}
	}
}

// carry hands a connection to the server, or resets it if the server refuses it.
func (n *network) carry(conn *net.TCPConn, target string) {
	c := resettable{conn}
	out, err := n.connect(target, false)
	if err != nil {
		c.Reset()
		return
	}
	splice(c, out)
}

type resettable struct{ *net.TCPConn }

func (c resettable) Reset() {
	_ = c.SetLinger(0)
	c.Close()
}

// connect requests a connection from the server, or an exchange of datagrams.
func (n *network) connect(target string, datagrams bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), outTime)
	defer cancel()
	out, err := n.stream(ctx)
	if err != nil {
		return nil, err
	}
	protocol := ""
	if datagrams {
		protocol = "Berth-Protocol: udp\r\n"
	}
	_ = out.SetDeadline(time.Now().Add(outTime))
	s := &stream{Stream: out, in: bufio.NewReader(out)}
	_, err = fmt.Fprintf(out, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, target, protocol)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(s.in, &http.Request{Method: http.MethodConnect})
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		out.Close()
		return nil, err
	}
	_ = out.SetDeadline(time.Time{})
	return s, nil
}

// A stream is a connection whose first bytes may be in a buffer already.
type stream struct {
	*mux.Stream
	in *bufio.Reader
}

func (s *stream) Read(p []byte) (int, error) { return s.in.Read(p) }

type closeWriter interface{ CloseWrite() error }

// splice carries a connection of the sandbox over its stream until both are done. If the
// stream breaks off, so does the connection.
func splice(conn route.Conn, out net.Conn) {
	defer conn.Close()
	defer out.Close()
	var both sync.WaitGroup
	both.Go(func() {
		if err := pump(out, conn); errors.Is(err, mux.ErrReset) || errors.Is(err, mux.ErrLost) {
			conn.Reset()
		}
		_ = out.(closeWriter).CloseWrite()
	})
	both.Go(func() {
		if err := pump(conn, out); err == io.EOF {
			_ = conn.CloseWrite()
		} else {
			conn.Reset()
		}
	})
	both.Wait()
}

// setResolver makes programs send lookups to this guest. A guest that may not write the file
// accepts one that does the same.
func setResolver(path string) error {
	err := os.WriteFile(path,
		[]byte("nameserver 127.0.0.1\noptions timeout:"+strconv.Itoa(int(outTime/time.Second))+" attempts:1 no-aaaa\n"),
		0o644)
	if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS) {
		return err
	}
	have, readErr := os.ReadFile(path)
	if readErr != nil {
		return readErr
	}
	var servers []string
	for line := range strings.Lines(string(have)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			servers = append(servers, f[1])
		}
	}
	if !slices.Equal(servers, []string{"127.0.0.1"}) {
		return err
	}
	return nil
}
