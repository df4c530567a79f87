package egress

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/berth-run/berth/egress/proxy"
)

// A relay is a proxy for HTTP that notes what it is asked for, and leads everything to one host.
type relay struct {
	addr string
	mu   sync.Mutex
	asks []string
	cut  bool // ends tunnels after their first bytes
}

func (r *relay) asked() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.asks, " ")
}

// serveTCP serves each connection of a listener on the loopback, and returns its address.
func serveTCP(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); f(conn) }()
		}
	}()
	return l.Addr().String()
}

func newRelay(t *testing.T, served string) *relay {
	r := &relay{}
	r.addr = serveTCP(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.asks = append(r.asks, req.Method+" "+req.RequestURI+" "+req.Host)
		r.mu.Unlock()
		host, err := net.Dial("tcp", served)
		if err != nil {
			return
		}
		defer host.Close()
		if req.Method == http.MethodConnect {
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		} else {
			req.RequestURI = ""
			req.Write(host)
		}
		if r.cut {
			io.CopyN(c, host, 5)
			return
		}
		go func() { io.Copy(host, in); host.(*net.TCPConn).CloseWrite() }()
		io.Copy(c, host)
	})
	return r
}

// throughRelay makes a gate reach everything through a relay.
func throughRelay(w *world, r *relay) {
	server := proxy.NewServer(&url.URL{Scheme: "http", Host: r.addr}, nil, nil)
	w.gate.Proxy = func(context.Context, string) *proxy.Server { return server }
}

// A proxy gets the names of hosts: the gate looks up none and dials nothing. It asks for what the policy allows only,
// and never for what the proxy would find on its own network.
func TestProxyIsAsked(t *testing.T) {
	served := serveTCP(t, func(c net.Conn) { io.WriteString(c, "ready") })
	r := newRelay(t, served)
	w := newWorld(t, policy(t, false, "example.com:2222", "db:2222", "*.internal:2222", "localhost:2222",
		"10.0.0.0/8:2222", "93.184.216.34:2222", "private db.corp:2222", "8.8.8.8:53/udp"))
	throughRelay(w, r)
	conn, status := w.connect("example.com:2222")
	if status != 200 {
		t.Fatalf("got status %d", status)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "ready" {
		t.Errorf("got %q, %v", got, err)
	}
	for to, want := range map[string]int{"other.com:2222": 403, "db:2222": 403, "metadata.google.internal:2222": 403,
		"localhost:2222": 403, "10.1.2.3:2222": 403, "127.1:2222": 403, "0x7f.1:2222": 403, "2130706433:2222": 403,
		"93.184.216.34:2222": 200, "db.corp:2222": 200, "example.com:443:2222": 400} {
		if _, status := w.connect(to); status != want {
			t.Errorf("%s: got status %d, want %d", to, status, want)
		}
	}
	for _, no := range []string{"other", "db:", "internal", "localhost", "10.1", "127", "0x7f", "2130"} {
		if strings.Contains(r.asked(), no) {
			t.Errorf("the proxy was asked for %s: %s", no, r.asked())
		}
	}
	if len(w.lookups) > 0 || len(w.dialled) > 0 {
		t.Errorf("the gate looked up %q and dialled %v", w.lookups, w.dialled)
	}
}

// A policy with denied addresses cannot be kept through a proxy, so names are refused.
func TestProxyHidesDeniedAddresses(t *testing.T) {
	r := newRelay(t, serveTCP(t, func(c net.Conn) {}))
	p := policy(t, true)
	p.Denied = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	w := newWorld(t, p)
	throughRelay(w, r)
	if conn, status := w.connect("example.com:80"); status == 200 {
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != 403 {
			t.Errorf("got %v, %v", resp, err)
		}
	}
	if r.asked() != "" {
		t.Errorf("the proxy was asked for %s", r.asked())
	}
}

// The proxy connects to what the request line names. A sandbox cannot make it another host or port than the allowed one
// by the Host field, by an absolute URL, or by an address at which all names are allowed.
func TestProxyConfusedHost(t *testing.T) {
	served := serveTCP(t, func(c net.Conn) {
		http.ReadRequest(bufio.NewReader(c))
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	for _, tt := range []struct{ target, send, asked string }{
		{"example.com:80", "GET /a HTTP/1.1\r\nHost: EXAMPLE.com.\r\n\r\n", "GET http://example.com/a example.com"},
		{"example.com:80", "GET http://example.com:80/a HTTP/1.1\r\nHost: evil.com\r\n\r\n", "GET http://example.com/a example.com"},
		{"example.com:80", "GET http://evil.com/a HTTP/1.1\r\nHost: example.com\r\n\r\n", ""},
		{"example.com:80", "GET /a HTTP/1.1\r\nHost: evil.com\r\n\r\n", ""},
		{"93.184.216.34:80", "GET /a HTTP/1.1\r\nHost: evil.com\r\n\r\n",
			"CONNECT 93.184.216.34:80 93.184.216.34:80"},
	} {
		r := newRelay(t, served)
		w := newWorld(t, policy(t, false, "example.com", "93.184.216.34"))
		throughRelay(w, r)
		conn, status := w.connect(tt.target)
		if status != 200 {
			t.Fatalf("got status %d", status)
		}
		io.WriteString(conn, tt.send)
		http.ReadResponse(bufio.NewReader(conn), nil)
		conn.Close()
		if r.asked() != tt.asked {
			t.Errorf("%q to %s: the proxy was asked %q, want %q", tt.send, tt.target, r.asked(), tt.asked)
		}
	}
}

// A proxy that dies in the middle of a stream ends it, and nothing is dialled in its place.
func TestProxyDies(t *testing.T) {
	r := newRelay(t, serveTCP(t, func(c net.Conn) { io.WriteString(c, "ready to send") }))
	r.cut = true
	w := newWorld(t, policy(t, false, "example.com:2222"))
	throughRelay(w, r)
	conn, status := w.connect("example.com:2222")
	got, _ := io.ReadAll(conn)
	if status != 200 || string(got) != "ready" {
		t.Errorf("got status %d, %q", status, got)
	}
	gone := proxy.NewServer(&url.URL{Scheme: "socks5", Host: "127.0.0.1:1"}, nil, nil)
	w.gate.Proxy = func(context.Context, string) *proxy.Server { return gone }
	if _, status := w.connect("example.com:2222"); status != 502 {
		t.Errorf("without the proxy: got status %d", status)
	}
	if len(w.dialled) > 0 {
		t.Errorf("the gate dialled %v", w.dialled)
	}
}
