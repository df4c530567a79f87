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
	for end := time.Now().Add(time.Minute); w.gate.Traffic.Totals().Open > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the connection goes on")
		}
	}
	if _, status := w.connect("example.com:8080"); status != http.StatusForbidden {
		t.Errorf("a later connection: got status %d", status)
	}
}
