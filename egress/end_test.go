package egress

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// The end of a gate ends its connections, and refuses later ones.
func TestGateEnds(t *testing.T) { synctest.Test(t, testGateEnds) }

func testGateEnds(t *testing.T) {
	w := newWorld(t, policy(t, false, "example.com:8080"))
	w.host("example.com", "93.184.216.34", 8080, "")
	w.gate.Dial = func(context.Context, string, netip.AddrPort) (net.Conn, error) {
		here, there := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, there) }()
		return here, nil
	}
	conn, status := w.connect("example.com:8080")
	if status != http.StatusOK {
		t.Fatalf("got status %d", status)
	}
	if _, err := conn.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	quiet, status := w.connect("example.com:8080") // sends nothing
	if status != http.StatusOK {
		t.Fatalf("got status %d", status)
	}
	w.gate.End()
	if rest, _ := io.ReadAll(quiet); len(rest) > 0 {
		t.Errorf("got %q", rest)
	}
	quiet.Close()
	if rest, _ := io.ReadAll(conn); len(rest) > 0 {
		t.Errorf("got %q", rest)
	}
	conn.Close()
	synctest.Wait()
	if n := w.gate.Traffic.Totals().Open; n > 0 {
		t.Fatalf("%d connections are open", n)
	}
	if _, status := w.connect("example.com:8080"); status != http.StatusForbidden {
		t.Errorf("a later connection: got status %d", status)
	}
}

// deaf is a connection whose end cannot be sent, because the guest does not read.
type deaf struct {
	net.Conn
	over chan struct{}
}

func (d deaf) Reset() error { <-d.over; return nil }
func (d deaf) Close() error { <-d.over; return nil }

// A guest that does not read cannot keep connections of an ended gate.
func TestGateEndsDeafConnections(t *testing.T) {
	var g Gate
	over := make(chan struct{})
	defer close(over)
	var ended atomic.Int64
	for range 3 {
		if !g.enter(&deaf{over: over}, func() { ended.Add(1) }) {
			t.Fatal("a connection was refused")
		}
	}
	g.End()
	if n := ended.Load(); n != 3 {
		t.Errorf("%d of 3 connections have ended", n)
	}
	if g.enter(&deaf{over: over}, func() {}) {
		t.Error("a later connection was admitted")
	}
}
