package egress

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
)

// listenOnLoopback returns the port of a host that says "ready".
func listenOnLoopback(t *testing.T) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	acceptFrom(t, l, func(c net.Conn) { io.WriteString(c, "ready") })
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port
}

// A name without a dot is looked up as on the server's machine, here in its hosts file. Search
// domains do not apply to other names.
func TestNamesOfTheMachine(t *testing.T) {
	port := listenOnLoopback(t)
	w := newWorld(t, policy(t, false, "private localhost:"+port, "private 127.0.0.1:"+port))
	w.gate.Lookup, w.gate.Dial = nil, nil
	conn, status := w.connect("localhost:" + port)
	if status != 200 {
		t.Fatalf("got status %d", status)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "ready" {
		t.Errorf("got %q, %v", got, err)
	}
	for name, want := range map[string]string{"db": "db", "example.com": "example.com.", "db.corp": "db.corp."} {
		if got := queryName(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// A name without a dot may lead to a private address only if the operator allows that name, and
// to this machine's loopback only if the operator allows that address, too.
func TestNamesOfTheMachineAreInside(t *testing.T) {
	port := listenOnLoopback(t)
	n, _ := strconv.Atoi(port)
	for _, rules := range [][]string{{"localhost:" + port}, {"private localhost:" + port},
		{"localhost:" + port, "private 127.0.0.1:" + port}} {
		w := newWorld(t, policy(t, false, rules...))
		w.gate.Lookup, w.gate.Dial = nil, nil
		if _, status := w.connect(fmt.Sprintf("localhost:%d", n)); status != 403 {
			t.Errorf("%q: got status %d", rules, status)
		}
	}
}
