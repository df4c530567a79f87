package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// A client that sends too slowly is disconnected.
func TestSlowClients(t *testing.T) {
	for _, c := range []struct{ target, sent string }{
		{"example.com:443", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"},
		{"example.com:80", "GET / HTTP/1.1\r\nHost: example.com\r\nX-Slow: "},
		{"example.com:80", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := &Gate{Policy: policy(t, false, "example.com"),
				Lookup: func(context.Context, string) ([]netip.Addr, error) {
					t.Error("the name was looked up")
					return nil, net.ErrClosed
				}}
			conn, theirs := net.Pipe()
			go (&http.Server{Handler: g}).Serve(newOneListener(theirs))
			fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", c.target, c.target)
			gone := make(chan struct{})
			go func() {
				for i := 0; ; i++ {
					b := byte('x')
					if i < len(c.sent) {
						b = c.sent[i]
					}
					if c.sent != "" {
						if _, err := conn.Write([]byte{b}); err != nil {
							return
						}
					}
					select {
					case <-time.After(time.Second):
					case <-gone:
						return
					}
				}
			}()
			began := time.Now()
			_, _ = io.ReadAll(conn)
			if took := time.Since(began); took > 2*firstTime {
				t.Errorf("%s %q: ended after %v", c.target, c.sent, took)
			}
			close(gone)
			conn.Close()
			synctest.Wait()
			if n := g.connections.Load(); n != 0 {
				t.Errorf("%d connections left", n)
			}
		})
	}
}

// A sandbox's connections end with it, even those to hosts that send nothing.
func TestConnectionsEndWithTheSandbox(t *testing.T) {
	synctest.Test(t, testConnectionsEndWithTheSandbox)
}

func testConnectionsEndWithTheSandbox(t *testing.T) {
	w := newWorld(t, policy(t, false, "private db.corp:5432", "example.com"))
	over := make(chan struct{})
	defer close(over)
	silent := func() string {
		return listen(t, func(c net.Conn) {
			_, _ = io.Copy(io.Discard, c)
			<-over // sends nothing, even after the client's end of data
		})
	}
	w.host("db.corp", "10.0.0.9", 5432, silent())
	w.host("example.com", "93.184.216.34", 80, silent())
	w.host("example.com", "93.184.216.34", 443, silent())
	db, _ := w.connect("db.corp:5432")
	io.WriteString(db, "\x00start")
	plain, _ := w.connect("example.com:80")
	io.WriteString(plain, "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n")
	secure, _ := w.connect("example.com:443")
	secure.Write(hello(t, "example.com"))
	synctest.Wait()
	if got := w.gate.Traffic.Totals(); got.Allowed != 3 {
		t.Fatalf("%+v", got)
	}
	w.guest.Close()
	synctest.Wait()
	if n := w.gate.connections.Load(); n > 0 {
		t.Fatalf("%d connections counted", n)
	}
}

// A client that has closed its sending direction still receives the response.
func TestHalfClosed(t *testing.T) { synctest.Test(t, testHalfClosed) }

func testHalfClosed(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com:8080"))
	w.host("example.com", "93.184.216.34", 8080, listen(t, func(c net.Conn) {
		all, _ := io.ReadAll(c)
		for range 3 {
			time.Sleep(10 * time.Millisecond)
			fmt.Fprintf(c, "%s. ", all)
		}
	}))
	conn, _ := w.connect("example.com:8080")
	io.WriteString(conn, "\x00all")
	conn.(*prefixed).CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || string(got) != "\x00all. \x00all. \x00all. " {
		t.Errorf("got %q, %v", got, err)
	}
}
