package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth/guest/mux"
)

// A world is a set of hosts by name, and a gate to them whose requests arrive as streams of one
// connection, as a guest's do.
type world struct {
	t     testing.TB
	gate  *Gate
	guest *mux.Session
	hosts map[string][]netip.Addr   // what names resolve to
	ports map[netip.AddrPort]string // where addresses are really served

	mu      sync.Mutex
	changed sync.Cond // of flows
	flows   []Flow
	lookups []string
	dialled []netip.AddrPort
}

func newWorld(t testing.TB, p *Policy) *world {
	w := &world{t: t, hosts: map[string][]netip.Addr{}, ports: map[netip.AddrPort]string{}}
	w.changed.L = &w.mu
	w.gate = &Gate{Policy: p, Traffic: &Traffic{},
		Record: func(f Flow) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.flows = append(w.flows, f)
			w.changed.Broadcast()
		},
		Lookup: func(_ context.Context, name string) ([]netip.Addr, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lookups = append(w.lookups, name)
			if addrs := w.hosts[name]; addrs != nil {
				return addrs, nil
			}
			return nil, &net.DNSError{Name: name, IsNotFound: true}
		},
		Dial: func(ctx context.Context, network string, a netip.AddrPort) (net.Conn, error) {
			w.mu.Lock()
			w.dialled = append(w.dialled, a)
			to := w.ports[a]
			w.mu.Unlock()
			if to == "" {
				return nil, errors.New("connection refused")
			}
			if strings.HasPrefix(to, inMemory) {
				return dialInMemory(to)
			}
			return (&net.Dialer{}).DialContext(ctx, network, to)
		}}
	ours, theirs := net.Pipe()
	host := mux.Client(ours, nil, nil)
	w.guest = mux.Guest(theirs)
	t.Cleanup(func() { host.Close(); w.guest.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-host.Done(); cancel() }()
	go (&http.Server{Handler: w.gate, BaseContext: func(net.Listener) context.Context { return ctx }}).Serve(host)
	return w
}

// host adds an address to a name and forwards it, on a port, to served.
func (w *world) host(name, addr string, port int, served string) {
	a := netip.MustParseAddr(addr)
	w.hosts[name] = append(w.hosts[name], a)
	w.ports[netip.AddrPortFrom(a, uint16(port))] = served
}

// connect requests a connection. It returns the status, which is 200 on success.
func (w *world) connect(target string) (net.Conn, int) { return w.connectWith(target, "") }

// connectWith is like connect, with more header fields.
func (w *world) connectWith(target, fields string) (net.Conn, int) {
	w.t.Helper()
	conn, err := w.guest.Open(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, target, fields)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		w.t.Fatal(err)
	}
	return &prefixed{conn, in}, resp.StatusCode
}

// resolve returns the status for a name's lookup.
func (w *world) resolve(name string) (status int) {
	w.t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return w.guest.Open(ctx) }}}
	resp, err := c.Get("http://server/resolve?name=" + name)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

type prefixed struct {
	*mux.Stream
	in *bufio.Reader
}

func (p *prefixed) Read(b []byte) (int, error) { return p.in.Read(b) }

// last waits for the flow of the last connection to end, and returns it.
func (w *world) last() Flow {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := len(w.flows); n == 0 || w.flows[n-1].Opening; n = len(w.flows) {
		w.changed.Wait()
	}
	f := w.flows[len(w.flows)-1]
	w.flows = nil
	return f
}

// ended waits for n connections to end, and returns their flows with the openings.
func (w *world) ended(n int) []Flow {
	w.mu.Lock()
	defer w.mu.Unlock()
	ends := func() (n int) {
		for _, f := range w.flows {
			if !f.Opening {
				n++
			}
		}
		return n
	}
	for ends() < n {
		w.changed.Wait()
	}
	flows := w.flows
	w.flows = nil
	return flows
}

func (w *world) refused(why string) {
	w.t.Helper()
	if f := w.last(); f.Allowed || !strings.Contains(f.Reason, why) {
		w.t.Errorf("got %+v, want a refusal with %q", f, why)
	}
}

// httpClient returns a client in the sandbox: its connections go through the gate.
func (w *world) httpClient(roots *x509.CertPool) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			conn, status := w.connect(addr)
			if status != http.StatusOK {
				return nil, fmt.Errorf("status %d", status)
			}
			return conn, nil
		}}}
}

func serve(t testing.TB, secure bool, h http.HandlerFunc) (addr string, roots *x509.CertPool) {
	srv := &httptest.Server{Listener: listenInMemory(t), Config: &http.Server{Handler: h}}
	if secure {
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	roots = x509.NewCertPool()
	if secure {
		roots.AddCert(srv.Certificate())
	}
	return srv.Listener.Addr().String(), roots
}

func get(t testing.TB, c *http.Client, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// httptest's certificate is for example.com and *.example.com.
func TestTLSPassesUnopened(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com"))
	addr, roots := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat(r.Host, 1<<16))
	})
	w.host("example.com", "93.184.216.34", 443, addr)
	status, body := get(t, w.httpClient(roots), "https://example.com/") // the host's own certificate is seen
	if status != 200 || len(body) != 11<<16 {
		t.Errorf("got %d, %d bytes", status, len(body))
	}
}

func TestHTTP(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com", "example.com:8080"))
	addr, _ := serve(t, false, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host+r.URL.Path) })
	w.host("example.com", "93.184.216.34", 80, addr)
	w.host("example.com", "93.184.216.34", 8080, addr)
	c := w.httpClient(nil)
	for url, want := range map[string]string{"http://example.com/a": "example.com/a",
		"http://example.com:8080/b": "example.com:8080/b"} {
		if status, body := get(t, c, url); status != 200 || body != want {
			t.Errorf("%s: got %d %s", url, status, body)
		}
	}
	c.CloseIdleConnections()
	if f := w.last(); !f.Allowed || f.Sent == 0 || f.Received == 0 || f.Addr.String() != "93.184.216.34" {
		t.Errorf("flow: got %+v", f)
	}
}

// A refused name is neither looked up nor dialled.
func TestRefusedNames(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com"))
	for _, target := range []string{"secret.data.evil.com:443", "example.com:22", "10.0.0.1:443", "[::1]:80",
		"169.254.169.254:80", "127.0.0.1:80", "localhost:80", "2130706433:80"} {
		if _, status := w.connect(target); status != http.StatusForbidden {
			t.Errorf("%s: got %d", target, status)
		}
		w.refused("")
	}
	if status := w.resolve("secret.data.evil.com"); status != http.StatusForbidden {
		t.Errorf("resolve: got %d", status)
	}
	if len(w.lookups) != 0 || len(w.dialled) != 0 {
		t.Errorf("looked up %v, dialled %v", w.lookups, w.dialled)
	}
}

// An allowed name must not lead to a private address, whatever its DNS returns.
func TestRebinding(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com", "private inside.corp"))
	addr, _ := serve(t, false, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "inside") })
	for _, a := range []string{"10.0.0.7", "127.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "fd12::1",
		"64:ff9b::7f00:1"} {
		w.hosts["example.com"] = nil
		w.host("example.com", a, 80, addr)
		if status, body := get(t, w.httpClient(nil), "http://example.com/"); status == 200 {
			t.Errorf("%s: got %s", a, body)
		}
		w.refused("no address that may be dialled")
	}
	w.host("example.com", "93.184.216.34", 80, addr) // in addition to the private one
	if status, body := get(t, w.httpClient(nil), "http://example.com/"); status != 200 {
		t.Errorf("with a public address too: got %d %s", status, body)
	}
	w.host("inside.corp", "10.0.0.8", 80, addr)
	if status, body := get(t, w.httpClient(nil), "http://inside.corp/"); status != 200 {
		t.Errorf("a private host: got %d %s", status, body)
	}
	w.hosts["inside.corp"] = nil
	w.host("inside.corp", "127.0.0.1", 80, addr)
	if status, _ := get(t, w.httpClient(nil), "http://inside.corp/"); status == 200 {
		t.Error("a private host reaches the server's loopback")
	}
}

func TestOtherNamesOnTheWire(t *testing.T) { synctest.Test(t, testOtherNamesOnTheWire) }

func testOtherNamesOnTheWire(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com", "example.com:8443", "example.com:8080"))
	secure, _ := serve(t, true, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "reached") })
	plain, _ := serve(t, false, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "reached") })
	for port, served := range map[int]string{443: secure, 8443: secure, 80: plain, 8080: plain} {
		w.host("example.com", "93.184.216.34", port, served)
	}
	for _, port := range []string{"443", "8443"} {
		conn, _ := w.connect("example.com:" + port)
		if err := tls.Client(conn, &tls.Config{ServerName: "evil.com",
			InsecureSkipVerify: true}).Handshake(); err == nil {
			t.Errorf("port %s: a handshake for another name succeeded", port)
		}
		w.refused("names another host: evil.com")
	}
	for _, port := range []string{"80", "8080"} {
		c := w.httpClient(nil)
		if status, body := get(t, c, "http://example.com:"+port+"/", "Host",
			"evil.com"); status != http.StatusForbidden {
			t.Errorf("port %s: another Host: got %d %s", port, status, body)
		}
		w.refused("names another host: evil.com")
		if status, body := get(t, c, "http://example.com:"+port+"/"); status != 200 {
			t.Errorf("port %s: got %d %s", port, status, body)
		}
		if status, body := get(t, c, "http://example.com:"+port+"/", "Host",
			"evil.com"); status != http.StatusForbidden {
			t.Errorf("port %s: another Host on the same connection: got %d %s", port, status, body)
		}
		w.refused("names another host: evil.com")
	}
	for name, sent := range map[string]string{
		"not TLS on port 443":   "example.com:443|SSH-2.0-x\r\n",
		"neither HTTP nor TLS":  "example.com:80|SSH-2.0-x\r\n",
		"names another host":    "example.com:80|GET http://evil.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n",
		"a request for a proxy": "example.com:80|CONNECT evil.com:443 HTTP/1.1\r\nHost: evil.com:443\r\n\r\n",
		"names another port":    "example.com:80|GET / HTTP/1.1\r\nHost: example.com:22\r\n\r\n",
	} {
		target, words, _ := strings.Cut(sent, "|")
		conn, _ := w.connect(target)
		io.WriteString(conn, words)
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if answer, _ := io.ReadAll(conn); strings.Contains(string(answer), "reached") {
			t.Errorf("%s: got %s", name, answer)
		}
		conn.Close()
		w.refused("")
	}
}

// listen serves one connection at a time.
func listen(t testing.TB, f func(net.Conn)) string {
	l := listenInMemory(t)
	acceptFrom(t, l, f)
	return l.Addr().String()
}

// acceptFrom serves one connection of a listener at a time, and closes the listener with the test.
func acceptFrom(t testing.TB, l net.Listener, f func(net.Conn)) {
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			f(conn)
			conn.Close()
		}
	}()
}

// Any protocol passes on a port that a rule names, whichever end sends first.
func TestOtherProtocols(t *testing.T) {
	w := newWorld(t, policy(t, false, "private db.corp:5432", "private mail.corp:25"))
	w.host("db.corp", "10.0.0.9", 5432, listen(t, func(c net.Conn) { // echoes
		b := make([]byte, 7) // all of it: a close with unread bytes resets the connection
		io.ReadFull(c, b)
		c.Write(b)
	}))
	w.host("mail.corp", "10.0.0.9", 25, listen(t, func(c net.Conn) { // greets
		io.WriteString(c, "220 hi\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		io.WriteString(c, "250 "+line)
	}))
	conn, _ := w.connect("db.corp:5432")
	io.WriteString(conn, "\x00\x00start")
	if got, _ := io.ReadAll(conn); string(got) != "\x00\x00start" {
		t.Errorf("the client sends first: got %q", got)
	}
	conn, _ = w.connect("mail.corp:25")
	in := bufio.NewReader(conn)
	greeting, _ := in.ReadString('\n')
	io.WriteString(conn, "EHLO x\r\n")
	answer, _ := in.ReadString('\n')
	if greeting != "220 hi\r\n" || answer != "250 EHLO x\r\n" {
		t.Errorf("the host sends first: got %q %q", greeting, answer)
	}
}

func TestTooManyConnections(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com"))
	w.gate.connections.Store(MaxConnections)
	if _, status := w.connect("example.com:443"); status != http.StatusTooManyRequests {
		t.Errorf("got %d", status)
	}
	w.refused("too many")
	if n := w.gate.connections.Load(); n != MaxConnections {
		t.Errorf("%d connections counted", n)
	}
}
