package conns

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/nofile"
)

// serve starts a server for the test. /key handles a request with a valid key and
// /health one without. /hold has a key and answers until the client disconnects.
// /tunnel has a key and hijacks the connection.
func serve(t *testing.T, limits Limits) (*Listener, string) {
	t.Helper()
	raw, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Limit(raw, limits, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/key", func(_ http.ResponseWriter, r *http.Request) { Known(r.Context()) })
	mux.HandleFunc("/hold", func(w http.ResponseWriter, r *http.Request) {
		Known(r.Context())
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/tunnel", func(w http.ResponseWriter, r *http.Request) {
		Known(r.Context())
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
		go func() {
			_, _ = io.Copy(conn, conn)
			conn.Close()
		}()
	})
	s := &http.Server{Handler: mux}
	l.Attach(s)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	_, port, err := net.SplitHostPort(raw.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return l, port
}

// dial connects from an address of this machine.
func dial(t *testing.T, from, port string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	c, err := d.DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// request sends a request and returns the status line of the answer, or an error text.
func request(c net.Conn, path string) string {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		return err.Error()
	}
	return answer(c)
}

// answer returns the status line of an answer, or an error text.
func answer(c net.Conn) string {
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

const (
	ok      = "HTTP/1.1 200 OK"
	refused = "HTTP/1.1 503 Service Unavailable"
)

// until waits until the counters satisfy is.
func until(t *testing.T, l *Listener, what string, is func(Counts) bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-tick.C {
		if is(l.Counts()) {
			return
		}
	}
	t.Fatalf("timeout: want %s, got %+v", what, l.Counts())
}

// Connections with half a request or idle ones, from many addresses, stay limited. They
// neither block clients with a key nor end their streams.
func TestHoardedConnections(t *testing.T) {
	limits := Limits{Total: 60, PerAddress: 50, WithoutKey: 30, WithoutKeyAddress: 15}
	l, port := serve(t, limits)
	stream := dial(t, "127.0.0.1", port)
	if got := request(stream, "/hold"); got != ok {
		t.Fatalf("a stream: got %q", got)
	}
	for i := range 200 {
		c := dial(t, fmt.Sprintf("127.0.0.%d", 2+i%3), port)
		if i%2 == 0 {
			_, _ = io.WriteString(c, "GET /key HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		} else if got := request(c, "/health"); got != ok && !strings.Contains(got, "reset") && got != "EOF" {
			t.Fatalf("a request without a key: got %q", got)
		}
		if n := l.Counts(); n.WithoutKey > limits.WithoutKey {
			t.Fatalf("%d connections: %+v", i, n)
		}
	}
	for range 20 {
		if got := request(dial(t, "127.0.0.1", port), "/key"); got != ok {
			t.Errorf("a request with a key from another address: got %q", got)
		}
		if got := request(dial(t, "127.0.0.2", port), "/key"); got != ok {
			t.Errorf("a request with a key from the same address: got %q", got)
		}
	}
	if n := l.Counts(); n.WithKey < 41 || n.Closed == 0 {
		t.Errorf("got %+v", n)
	}
	_ = stream.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := io.Copy(io.Discard, stream); err == nil {
		t.Error("the stream was ended")
	}
}

// Clients with keys that connect all at the same time are served, even if they exceed the limit of
// connections without a key.
func TestManyClientsAtOnce(t *testing.T) {
	l, port := serve(t, Limits{Total: 400, PerAddress: 350, WithoutKey: 20, WithoutKeyAddress: 10})
	all := make([]net.Conn, 300)
	for i := range all {
		all[i] = dial(t, "127.0.0.1", port)
		if _, err := io.WriteString(all[i], "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range all {
		if got := answer(c); got != ok {
			t.Errorf("client %d: got %q", i, got)
		}
	}
	if n := l.Counts(); n.WithKey != 300 || n.WithoutKey != 0 {
		t.Errorf("got %+v", n)
	}
}

// Connections with a key are replaced while idle, but not while in use. WebSockets and
// tunnels count until they end.
func TestConnectionsWithKey(t *testing.T) {
	l, port := serve(t, Limits{Total: 6, PerAddress: 4, WithoutKey: 6, WithoutKeyAddress: 4})
	tunnel := dial(t, "127.0.0.1", port)
	if got := request(tunnel, "/tunnel"); !strings.HasPrefix(got, "HTTP/1.1 101") {
		t.Fatalf("a tunnel: got %q", got)
	}
	idle := dial(t, "127.0.0.1", port)
	for _, c := range []net.Conn{idle, dial(t, "127.0.0.1", port)} {
		if got := request(c, "/key"); got != ok {
			t.Fatalf("got %q", got)
		}
	}
	for range 2 { // the second replaces idle
		if got := request(dial(t, "127.0.0.1", port), "/hold"); got != ok {
			t.Fatalf("got %q", got)
		}
	}
	if _, err := idle.Read(make([]byte, 1)); err == nil || l.Counts().Closed != 1 {
		t.Errorf("the connection that has waited longest: got %v, %+v", err, l.Counts())
	}
	if got := request(dial(t, "127.0.0.1", port), "/hold"); got != ok { // replaces the other idle one
		t.Fatalf("got %q", got)
	}
	if got := request(dial(t, "127.0.0.1", port), "/key"); got != refused {
		t.Errorf("one more of an address whose connections are all in use: got %q", got)
	}
	for range 2 {
		if got := request(dial(t, "127.0.0.2", port), "/hold"); got != ok {
			t.Fatalf("another address: got %q", got)
		}
	}
	if got := request(dial(t, "127.0.0.3", port), "/key"); got != refused || l.Counts().Refused != 2 {
		t.Errorf("one more than the total limit: got %q, %+v", got, l.Counts())
	}
	tunnel.Close()
	until(t, l, "5 connections after the end of the tunnel", func(n Counts) bool { return n.WithKey == 5 })
	if got := request(dial(t, "127.0.0.3", port), "/key"); got != ok {
		t.Errorf("after the tunnel: got %q", got)
	}
}

// Closed connections are not counted.
func TestCountsReturnToZero(t *testing.T) {
	l, port := serve(t, nofile.DefaultConnections(200))
	var wg sync.WaitGroup
	for i := range 60 {
		c := dial(t, "127.0.0.1", port)
		wg.Go(func() {
			request(c, []string{"/key", "/health", "/hold", "/tunnel", "/nothing"}[i%5])
			c.Close()
		})
	}
	wg.Wait()
	until(t, l, "no connections", func(n Counts) bool { return n.WithKey+n.WithoutKey == 0 })
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sources) != 0 {
		t.Errorf("%d addresses remain", len(l.sources))
	}
}

func TestSourceOf(t *testing.T) {
	for addr, want := range map[string]string{"192.0.2.7:80": "192.0.2.7", "[::ffff:192.0.2.7]:80": "192.0.2.7",
		"[2001:db8:1:2:3::4]:80": "2001:db8:1:2::"} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := sourceOf(a); got.String() != want {
			t.Errorf("%s: got %v, want %s", addr, got, want)
		}
	}
	Known(context.Background()) // without a connection it does nothing
}
