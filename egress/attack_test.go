package egress

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth/guest/mux"
)

// exchange sends words on a connection and returns the response: all data until EOF or a short
// pause.
func (w *world) exchange(target, words string) (answer string) {
	w.t.Helper()
	conn, status := w.connect(target)
	if status != http.StatusOK {
		w.t.Fatalf("%s: status %d", target, status)
	}
	go io.WriteString(conn, words)
	_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	b, _ := io.ReadAll(conn)
	conn.Close()
	return string(b)
}

// A request's length, host or routing fields must neither hide a second request nor name another
// host.
func TestSmuggledRequests(t *testing.T) { synctest.Test(t, testSmuggledRequests) }

func testSmuggledRequests(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com", "example.com:8080"))
	var mu sync.Mutex
	var seen []string // "method host path" of each request
	addr, _ := serve(t, false, func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf("%s %s %s", r.Method, r.Host, r.URL))
	})
	w.host("example.com", "93.184.216.34", 80, addr)
	w.host("example.com", "93.184.216.34", 8080, listen(t, func(c net.Conn) { // a lenient host
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		b, _ := io.ReadAll(c)
		if head, _, _ := strings.Cut(string(b), "\r\n\r\nG"); strings.Contains(head, "/evil") || strings.Contains(head,
			"\nHost: evil") {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, string(b))
		}
	}))
	evil := "GET /evil HTTP/1.1\r\nHost: evil.com\r\n\r\n"
	for name, words := range map[string]string{
		"pipelined":           "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n" + evil,
		"two hosts":           "GET /evil HTTP/1.1\r\nHost: example.com\r\nHost: evil.com\r\n\r\n",
		"length and chunks":   "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + evil,
		"two lengths":         "POST / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\n" + evil,
		"obscure chunks":      "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + evil,
		"a space and a colon": "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + evil,
		"a folded line":       "GET / HTTP/1.1\r\nHost: example.com\r\nX: a\r\n Host: evil.com\r\n\r\n",
		"a line feed":         "GET / HTTP/1.1\r\nHost: example.com\r\nX: a\nHost: evil.com\r\n\r\n",
		"whole address":       "GET http://evil.com/evil HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"user in the host":    "GET /evil HTTP/1.1\r\nHost: example.com@evil.com\r\n\r\n",
		"list of hosts":       "GET /evil HTTP/1.1\r\nHost: example.com, evil.com\r\n\r\n",
		"address as host":     "GET /evil HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
		"host that is empty":  "GET /evil HTTP/1.1\r\nHost:\r\n\r\n",
		"no host":             "GET /evil HTTP/1.0\r\n\r\n",
		"HTTP/2 in the clear": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"a proxy":             "CONNECT evil.com:443 HTTP/1.1\r\nHost: evil.com:443\r\n\r\n",
		"its host as a proxy": "CONNECT example.com:80 HTTP/1.1\r\nHost: example.com:80\r\nX: evil\r\n\r\n",
		"a method of its own": "BREW /evil HTTP/1.1\r\nHost: evil.com\r\n\r\n",
		"a small method":      "get /evil HTTP/1.1\r\nHost: evil.com\r\n\r\n",
		"an empty line":       "\r\n\r\nGET /evil HTTP/1.1\r\nHost: evil.com\r\n\r\n",
		"an empty short line": "\nGET /evil HTTP/1.1\r\nHost: evil.com\r\n\r\n",
		"many empty lines":    strings.Repeat("\r\n", 5000) + "GET /evil HTTP/1.1\r\nHost: evil.com\r\n\r\n",
	} {
		for _, target := range []string{"example.com:80", "example.com:8080"} {
			w.exchange(target, words)
			mu.Lock()
			for _, got := range seen {
				if strings.Contains(got, "evil") || strings.HasPrefix(got, "CONNECT") {
					t.Errorf("%s, at %s: the host got %q", name, target, got)
				}
			}
			seen = nil
			mu.Unlock()
		}
	}
	// Valid requests pass, even unusual ones.
	for _, words := range []string{"BREW /good HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"PROPFIND /good HTTP/1.1\r\nHost: EXAMPLE.com.\r\n\r\n"} {
		if answer := w.exchange("example.com:80", words); !strings.HasPrefix(answer, "HTTP/1.1 200") || len(seen) != 1 {
			t.Errorf("%q: got %q", words, answer)
		}
		seen = nil
	}
}

// A request in pieces, with long pauses, is recognized. Another protocol is not delayed.
func TestPieces(t *testing.T) { synctest.Test(t, testPieces) }

func testPieces(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com:8080"))
	heard := make(chan string, 64)
	w.host("example.com", "93.184.216.34", 8080, listen(t, func(c net.Conn) {
		b := make([]byte, 100)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			heard <- string(b[:n])
			io.WriteString(c, "ok")
		}
	}))
	conn, _ := w.connect("example.com:8080")
	answer := make([]byte, 2)
	for _, piece := range []string{"BR", "EW", " /a"} { // each waits for its echo
		io.WriteString(conn, piece)
		if got := <-heard; got != piece {
			t.Fatalf("got %q, want %q", got, piece)
		}
		io.ReadFull(conn, answer)
	}
	io.WriteString(conn, " HTTP/1.1\r\nHost: evil.com\r\n\r\n")
	// The stream ends with a reset, or cleanly if the host's end comes first; what counts is that nothing passes.
	if b, err := io.ReadAll(conn); err != nil && !errors.Is(err, mux.ErrReset) || len(b) > 0 {
		t.Errorf("after the rest of the request: got %q, %v", b, err)
	}
	w.refused("in pieces")
	select {
	case got := <-heard:
		t.Errorf("the host got %q", got)
	default:
	}
}

// The gate does not upgrade to HTTP/2: the requests that follow would name their own hosts.
func TestUpgradeToHTTP2(t *testing.T) { synctest.Test(t, testUpgradeToHTTP2) }

func testUpgradeToHTTP2(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com"))
	addr, _ := serve(t, false, func(rw http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Upgrade"), "h2c") {
			rw.Header().Set("Connection", "Upgrade")
			rw.Header().Set("Upgrade", "h2c")
			rw.WriteHeader(http.StatusSwitchingProtocols)
			return
		}
		io.WriteString(rw, "plain")
	})
	w.host("example.com", "93.184.216.34", 80, addr)
	for _, upgrade := range []string{"h2c", "H2C", "websocket, h2c"} {
		answer := w.exchange("example.com:80",
			"GET / HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+upgrade+"\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n")
		if !strings.Contains(answer, "plain") {
			t.Errorf("%s: got %q", upgrade, answer)
		}
	}
}

// hello returns a client hello for a server name, which may be one that no proper client sends.
func hello(t testing.TB, name string) []byte {
	t.Helper()
	proper := "x" + strings.Repeat("y", max(0, len(name)-3)) + "zz"
	sent := &tappedConn{Reader: strings.NewReader("")}
	var out bytes.Buffer
	_ = tls.Client(&written{sent, &out}, &tls.Config{ServerName: proper[:len(name)],
		InsecureSkipVerify: true}).Handshake()
	b := bytes.Replace(out.Bytes(), []byte(proper[:len(name)]), []byte(name), 1)
	if !bytes.Contains(b, []byte(name)) {
		t.Fatalf("the hello does not name %s", name)
	}
	return b
}

type written struct {
	*tappedConn
	to io.Writer
}

func (w *written) Write(p []byte) (int, error) { return w.to.Write(p) }

// A handshake that a lenient host might parse differently is refused on every port.
func TestHandshakesThatCannotBeRead(t *testing.T) { synctest.Test(t, testHandshakesThatCannotBeRead) }

func testHandshakesThatCannotBeRead(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com", "example.com:8443"))
	reached := make(chan []byte, 8)
	host := listen(t, func(c net.Conn) {
		b := make([]byte, 1<<12)
		if n, _ := c.Read(b); n > 0 {
			reached <- b[:n]
		}
	})
	w.host("example.com", "93.184.216.34", 443, host)
	w.host("example.com", "93.184.216.34", 8443, host)
	pieces := func(b []byte, size int) (out []byte) { // one record for each piece
		for body := b[5:]; len(body) > 0; {
			n := min(size, len(body))
			out = append(append(out, b[0], b[1], b[2], byte(n>>8), byte(n)), body[:n]...)
			body = body[n:]
		}
		return out
	}
	for name, sent := range map[string][]byte{
		"another name":            hello(t, "evil.com"),
		"another name, in pieces": pieces(hello(t, "evil.com"), 7),
		"a final dot":             hello(t, "evil.com."),
		"a final dot, in pieces":  pieces(hello(t, "evil.com."), 3),
		"cut off":                 append(hello(t, "evil.com")[:90:90], bytes.Repeat([]byte{0x16}, 400)...),
	} {
		for _, target := range []string{"example.com:443", "example.com:8443"} {
			w.exchange(target, string(sent))
			select {
			case b := <-reached:
				t.Errorf("%s, at %s: the host got %.100q", name, target, b)
			default:
			}
		}
	}
	w.exchange("example.com:8443", string(pieces(hello(t, "example.com"), 5)))
	select {
	case <-reached:
	default:
		t.Error("the allowed name in pieces: refused")
	}
}

// The target of a redirect is decided like any other target.
func TestRedirects(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com"))
	to := ""
	addr, _ := serve(t, false, func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, to, http.StatusFound)
	})
	w.host("example.com", "93.184.216.34", 80, addr)
	for _, to = range []string{"http://evil.com/", "http://169.254.169.254/latest/meta-data/",
		"http://[fd00:ec2::254]/", "http://127.0.0.1/",
		"http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://2130706433/", "http://0x7f.1/", "http://017700000001/",
		"http://example.com:22/", "http://metadata.google.internal/"} {
		if status, body := get(t, w.httpClient(nil), "http://example.com/"); status != 0 {
			t.Errorf("%s: got %d %s", to, status, body)
		}
	}
	for _, name := range w.lookups {
		if name != "example.com" {
			t.Errorf("%s was looked up", name)
		}
	}
}

// A gate refuses this machine's own public addresses: services there may rely on a firewall.
func TestOwnAddresses(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil || len(own) == 0 {
		t.Fatal(err)
	}
	for _, o := range own {
		if n, ok := o.(*net.IPNet); ok {
			if a, _ := netip.AddrFromSlice(n.IP); !Own(a) {
				t.Errorf("Own(%s) = false, want true", a)
			}
		}
	}
	if Own(netip.MustParseAddr("93.184.216.34")) {
		t.Error("Own of another machine's address = true, want false")
	}
	w := newWorld(t, policy(t, true, "example.com", "93.184.216.34", "private inside.corp", "private 93.184.216.35"))
	addr, _ := serve(t, false, func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "reached") })
	w.gate.Own = func(a netip.Addr) bool { return strings.HasPrefix(a.Unmap().String(), "93.184.216.") }
	for _, a := range []string{"93.184.216.34", "::ffff:93.184.216.34"} {
		w.hosts["example.com"] = nil
		w.host("example.com", a, 80, addr)
		for _, url := range []string{"http://example.com/", "http://93.184.216.34/"} {
			if status, body := get(t, w.httpClient(nil), url); status == 200 {
				t.Errorf("%s at %s: got %s", url, a, body)
			}
			w.refused("no address that may be dialled")
		}
	}
	w.host("inside.corp", "93.184.216.34", 80, addr)
	w.host("", "93.184.216.35", 80, addr)
	for _, url := range []string{"http://inside.corp/", "http://93.184.216.35/"} { // the operator has named them
		if status, body := get(t, w.httpClient(nil), url); status != 200 {
			t.Errorf("%s: got %d %s", url, status, body)
		}
	}
}

// A name that only looks like an allowed one is refused.
func TestLookalikeNames(t *testing.T) {
	for name, want := range map[string]string{
		"EXAMPLE.com": "example.com", "example.com.": "example.com", "xn--bcher-kva.example": "xn--bcher-kva.example",
		"XN--BCHER-KVA.Example.": "xn--bcher-kva.example",
		"\u212aube.example":      "", "b\u00fccher.example": "", "example\u3002com": "", "e\u00adxample.com": "",
		"example.com..": "", ".example.com": "", "example..com": "",
		"example.com\x00.evil.com": "", "example.com evil.com": "", "example.com/": "", "example.com:80": "",
		"exam\tple.com": "", "[::1]": "", "0x7f.1": "", "127.1": "", "1.2.3.0x4": "", "*.example.com": "",
	} {
		if got, ok := CanonicalName(name); got != want || ok != (want != "") {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
	p := policy(t, false, "*.example.com", "xn--bcher-kva.example")
	for name, want := range map[string]bool{"a.example.com": true, "a.b.EXAMPLE.com.": true,
		"xn--bcher-kva.EXAMPLE": true, "b\u00fccher.example": false,
		"example.com": false, "aexample.com": false, "a.example.com.evil.com": false, ".example.com": false,
		"a.example.comx": false} {
		if got := Decide(p, Target{Host: name, Port: 443}).Allow; got != want || p.Names(name) != want {
			t.Errorf("%q: got %v, want %v", name, got, want)
		}
	}
}

// An address of a metadata service, which may be public, requires a rule of the operator's for
// exactly that address.
func TestMetadataAddresses(t *testing.T) {
	for _, a := range append(slices.Clone(metadata), netip.MustParseAddr("169.254.170.23"),
		netip.MustParseAddr("fe80::a9fe:a9fe")) {
		at := netip.PrefixFrom(a, a.BitLen())
		wide := netip.PrefixFrom(a, 8).Masked()
		target := Target{Host: a.String(), Port: 80}
		for what, p := range map[string]*Policy{
			"open":               {Open: true},
			"a range":            {Rules: []Rule{{Prefix: wide}}},
			"a private range":    {Rules: []Rule{{Prefix: wide, Private: true}}},
			"itself, by a guest": {Rules: []Rule{{Prefix: at}}},
		} {
			if d := Decide(p, target); d.Allow {
				t.Errorf("%s under %s: got %+v", a, what, d)
			}
		}
		if d := Decide(&Policy{Rules: []Rule{{Prefix: at, Private: true}}}, target); !d.Allow {
			t.Errorf("%s, named by the operator: got %+v", a, d)
		}
		named := &Policy{Rules: []Rule{{Name: "metadata.corp", Private: true}}}
		if d := Decide(named, Target{Host: "metadata.corp", Port: 80}); named.mayDial(d, Target{Host: "metadata.corp",
			Port: 80}, a) {
			t.Errorf("%s: reached by a name", a)
		}
	}
}
