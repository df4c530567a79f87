package egress

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"
)

// The end of a gate ends its connections, and refuses later ones.
func TestGateEnds(t *testing.T) {
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
	w.gate.End()
	if rest, _ := io.ReadAll(conn); len(rest) > 0 {
		t.Errorf("got %q", rest)
	}
	for end := time.Now().Add(time.Minute); w.gate.Traffic.Totals().Open > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the connection goes on")
		}
	}
	again, status := w.connect("example.com:8080")
	if status == http.StatusOK {
		if _, err := again.Read(make([]byte, 1)); err == nil {
			t.Error("a connection of a gate that has ended was served")
		}
	}
}
