package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A group is what a gate's container sees of its neighbours.
type group struct {
	mu     sync.Mutex
	asked  []string
	failed error
	dial   func(port int) (net.Conn, error)
}

func (g *group) find(_ context.Context, name string) (*Neighbour, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, name)
	if g.failed != nil {
		return nil, g.failed
	}
	if name != "db" && name != "api" {
		return nil, ErrNoNeighbour
	}
	return &Neighbour{ID: "cntr_" + name, Ports: []int{5432}, Dial: func(_ context.Context, port int) (net.Conn, error) {
		return g.dial(port)
	}}, nil
}

// echoes is a neighbour that says its port, and then repeats what it receives.
func echoes(port int) (net.Conn, error) {
	if port == 1 {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		_, _ = io.WriteString(theirs, "hello ")
		_, _ = io.Copy(theirs, theirs)
	}()
	return ours, nil
}

// A neighbour is reached at every port with every protocol, before the policy is asked, and gets no secrets.
func TestNeighbour(t *testing.T) {
	w := newWorld(t, &Policy{Open: true, Rules: []Rule{{Name: "api"}}})
	g := &group{dial: echoes}
	w.gate.Neighbours = g.find
	w.gate.Secrets = []Secret{{Domain: "api", Name: "KEY", Value: "the secret", Placeholder: "placeholder-of-key"}}
	for _, target := range []string{"db:5432", "api:80", "api:443", "DB:22", "api.:8080"} {
		conn, status := w.connect(target)
		if status != http.StatusOK {
			t.Fatalf("%s: got %d", target, status)
		}
		sent := "GET /placeholder-of-key HTTP/1.1\r\nHost: elsewhere\r\n\r\n"
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len("hello "+sent))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello "+sent {
			t.Errorf("%s: got %q, %v", target, got, err)
		}
		conn.Close()
	}
	if len(w.lookups) > 0 || len(w.dialled) > 0 {
		t.Errorf("neighbours were looked up outside: %v, and dialled: %v", w.lookups, w.dialled)
	}
	if got := w.resolve("db"); got != http.StatusOK {
		t.Errorf("lookup of a neighbour: got %d", got)
	}
	if _, status := w.connect("db:1"); status != http.StatusBadGateway {
		t.Errorf("a closed port: got %d", status)
	}
	if _, status := w.connectWith("db:53", "Berth-Protocol: udp\r\n"); status != http.StatusForbidden {
		t.Errorf("datagrams: got %d", status)
	}
	g.dial = func(int) (net.Conn, error) { return nil, Refusal("the neighbour is paused") }
	if _, status := w.connect("db:5432"); status != http.StatusForbidden {
		t.Errorf("a rule forbids the connection: got %d", status)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.ContainsFunc(w.flows, func(f Flow) bool {
		return f.Opening && f.Target.Host == "db" && f.Reason == "neighbour cntr_db"
	}) || !slices.ContainsFunc(w.flows, func(f Flow) bool { return !f.Allowed && f.Reason == "the neighbour is paused" }) {
		t.Errorf("the flows do not tell: %+v", w.flows)
	}
}

// Names that no neighbour can have are never looked up in the group, and names that none has are the policy's.
func TestHostileNeighbourNames(t *testing.T) {
	w := newWorld(t, &Policy{})
	g := &group{dial: echoes}
	w.gate.Neighbours = g.find
	for _, name := range []string{"localhost", "LOCALHOST", "local", "ip6-loopback", "example.com", "db.example.com",
		"db.task-7", "xn--db-fka", "d\u0131", "127", "0x7f000001", "2130706433", "-db", "db-", "..", ".db",
		strings.Repeat("d", 64), strings.Repeat("a.", 200) + "db", "db%00", "db\u3002"} {
		if got := w.resolve(strings.ReplaceAll(name, "%00", "%2500")); got != http.StatusForbidden {
			t.Errorf("lookup of %q: got %d", name, got)
		}
		if n, ok := NeighbourName(name); ok {
			t.Errorf("%q may be the name of a neighbour: %q", name, n)
		}
	}
	for _, target := range []string{"localhost:80", "127.0.0.1:5432", "[::1]:5432", "198.18.0.1:5432", "db.example.com:80",
		"xn--db-fka:80"} {
		if _, status := w.connect(target); status != http.StatusForbidden {
			t.Errorf("%s: got %d", target, status)
		}
	}
	if len(g.asked) > 0 {
		t.Errorf("the group was asked for %q", g.asked)
	}
	if _, status := w.connect("cache:6379"); status != http.StatusForbidden || len(g.asked) != 1 {
		t.Errorf("a name that nobody has: got %d, asked for %q", status, g.asked)
	}
}

// A group that cannot be read allows nothing: not what the policy has for the same name either.
func TestNeighboursUnknown(t *testing.T) {
	w := newWorld(t, &Policy{Rules: []Rule{{Name: "db", Ports: []int{5432}, Private: true}}})
	w.host("db", "10.0.0.1", 5432, "127.0.0.1:1")
	g := &group{dial: echoes, failed: errors.New("database: secret detail")}
	w.gate.Neighbours = g.find
	if got := w.resolve("db"); got != http.StatusServiceUnavailable {
		t.Errorf("lookup: got %d", got)
	}
	if _, status := w.connect("db:5432"); status != http.StatusForbidden || len(w.dialled) > 0 {
		t.Errorf("connection: got %d, dialled %v", status, w.dialled)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.flows {
		if strings.Contains(f.Reason, "secret") {
			t.Errorf("a flow has an internal error: %q", f.Reason)
		}
	}
}

// A container has as many connections to neighbours as to hosts, and End ends them.
func TestNeighbourConnections(t *testing.T) {
	w := newWorld(t, &Policy{})
	w.gate.Neighbours = (&group{dial: echoes}).find
	w.gate.Slots = NewSlots(2)
	first, status := w.connect("db:5432")
	_, second := w.connect("db:5432")
	_, third := w.connect("db:5432")
	if status != http.StatusOK || second != http.StatusOK || third != http.StatusTooManyRequests {
		t.Errorf("got %d, %d and %d", status, second, third)
	}
	w.gate.End()
	_, _ = io.Copy(io.Discard, first) // it ends
	if _, status := w.connect("db:5432"); status != http.StatusForbidden {
		t.Errorf("after the end: got %d", status)
	}
}
