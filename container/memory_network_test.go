package container_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// talking is a program that holds a connection to an address. When the connection ends, it
// reports how, and connects again until it gets an answer.
const talking = `cat >/tmp/talk.py <<'END'
import os, socket, time
def talk():
    s = socket.create_connection(("198.51.100.7", 7), timeout=60)
    s.sendall(b"hello\n")
    return s, s.recv(100).decode().strip()
def say(name, text):
    with open(name + "~", "w") as f: f.write(text)
    os.rename(name + "~", name)
s, answer = talk()
say("/tmp/open", answer)
try: ended = "end" if s.recv(100) == b"" else "data"
except OSError as err: ended = type(err).__name__
say("/tmp/ended", ended)
while True:
    try: answer = talk()[1]
    except OSError as err: say("/tmp/refused", type(err).__name__)
    else: say("/tmp/again", answer)
    time.sleep(.05)
END
setsid python3 /tmp/talk.py >/dev/null 2>&1 </dev/null &
until test -e /tmp/open; do sleep .01; done; cat /tmp/open`

// until returns a command that waits for a file that the program writes, and prints it.
func until(name string) string {
	return fmt.Sprintf("for i in $(seq 3000); do test -e %[1]s && break; sleep .01; done; cat %[1]s", name)
}

// A restored sandbox with a route for addresses has lost its connections and gets errors for
// them. The policy of the restoring request governs new ones.
func TestMemoryRoutes(t *testing.T) {
	echo := newEcho(t)
	rule, err := egress.ParseRule("198.51.100.0/24")
	if err != nil {
		t.Fatal(err)
	}
	k, _ := newGVisorServicesOn(t, drivertest.Rootfs(t), func(o *container.Options) {
		o.Network.Private = []egress.Rule{rule}
		o.Network.Dial = echo.dial
	})
	policy := func(secret string, domains ...string) *berth.NetworkPolicy {
		p := &berth.NetworkPolicy{Type: "allowlist", AllowedDomains: append(domains, "a.example")}
		if secret != "" {
			p.DomainSecrets = []berth.DomainSecret{{Domain: "a.example", Name: "KEY", Value: secret}}
		}
		return p
	}
	first := inhabit(t, k, container.CreateRequest{NetworkPolicy: policy("the first secret", "198.51.100.0/24:7")})
	if got := first.sh(talking); got != "7 hello" {
		t.Fatalf("got %q", got)
	}
	placeholder := first.sh("echo $KEY")
	s, err := k.Snapshots().Take(t.Context(), byBench.Project, first.id, container.SnapshotRequest{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	from := berth.ContainerSource{SnapshotID: s.ID}
	ends := func(c inhabited) {
		t.Helper()
		if got := c.sh(until("/tmp/ended")); got != "end" && got != "ConnectionResetError" {
			t.Errorf("the open connection: got %q, want its end", got)
		}
	}
	ends(first)
	if got := first.sh(until("/tmp/again")); got != "7 hello" {
		t.Errorf("a new connection of the original: got %q", got)
	}

	same := inhabit(t, k, container.CreateRequest{Source: from, NetworkPolicy: policy("another secret",
		"198.51.100.0/24:7")})
	ends(same)
	if got := same.sh(until("/tmp/again")); got != "7 hello" {
		t.Errorf("a new connection after the restore: got %q", got)
	}
	if got := same.sh("echo $KEY; cd /tmp"); got == placeholder || strings.TrimSpace(got) == "" {
		t.Errorf("its commands have the placeholder %q, those of the original %q, want another one", got, placeholder)
	}

	other := inhabit(t, k, container.CreateRequest{Source: from, NetworkPolicy: policy("", "198.51.100.8:7")})
	ends(other)
	if got := other.sh(until("/tmp/refused") + "; test ! -e /tmp/again"); !strings.HasPrefix(got, "Connection") {
		t.Errorf("an address that the new policy does not allow: got %q", got)
	}
	if got := other.sh(`exec 3<>/dev/tcp/198.51.100.8/7; echo hi >&3; head -n 1 <&3`); got != "8 hi\n" {
		t.Errorf("an address that the new policy allows: got %q", got)
	}

	none := inhabit(t, k, container.CreateRequest{Source: from})
	ends(none)
	if got := none.sh(until("/tmp/refused") + "; test ! -e /tmp/again"); got == "" {
		t.Error("without a network nothing is refused")
	}
}

// opening is a program whose threads open connections all the time, some of which the host leaves open for ever.
// It listens, too. The state of an endpoint decides how gVisor restores it.
const opening = `cat >/tmp/opening.py <<'END'
import socket, threading, time
l = socket.create_server(("127.0.0.1", 9000), backlog=100)
def many(addr, hold):
    held = []
    while True:
        try:
            s = socket.create_connection((addr, 7), timeout=60)
            if hold: s.recv(1)
            else: held = held[-8:] + [s]
        except OSError: time.sleep(.01)
for i in range(12):
    for addr, hold in ("198.51.100.7", False), ("198.51.100.8", True), ("198.51.100.9", True):
        threading.Thread(target=many, args=(addr, hold)).start()
open("/tmp/begun", "w").close()
END
setsid python3 /tmp/opening.py >/dev/null 2>&1 </dev/null &
until test -e /tmp/begun; do sleep .01; done`

// A snapshot of a sandbox that is opening connections can be restored: gVisor would wait for ever for an endpoint in
// the middle of a handshake over a device that is gone.
func TestMemoryHandshakes(t *testing.T) {
	echo := newEcho(t)
	rule, err := egress.ParseRule("198.51.100.0/24")
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan struct{}, 100)
	k, _ := newGVisorServicesOn(t, drivertest.Rootfs(t), func(o *container.Options) {
		o.Network.Private = []egress.Rule{rule}
		o.Network.Dial = func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
			if to.Addr().AsSlice()[3] == 9 { // which never answers
				select {
				case waiting <- struct{}{}:
				default:
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return echo.dial(ctx, network, to)
		}
	})
	policy := &berth.NetworkPolicy{Type: "allowlist", AllowedDomains: []string{"198.51.100.0/24:7"}}
	first := inhabit(t, k, container.CreateRequest{NetworkPolicy: policy})
	first.sh(opening)
	<-waiting
	for range 3 {
		s, err := k.Snapshots().Take(t.Context(), byBench.Project, first.id, container.SnapshotRequest{Memory: true})
		if err != nil {
			t.Fatal(err)
		}
		second := inhabit(t, k, container.CreateRequest{Source: berth.ContainerSource{SnapshotID: s.ID}})
		if got := second.sh("pgrep -f opening.py >/dev/null && echo runs"); got != "runs\n" {
			t.Errorf("got %q", got)
		}
	}
}

// An echo answers each line with the last byte of the dialed address.
type echo struct{ listener net.Listener }

func newEcho(t *testing.T) *echo {
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
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				who, err := in.ReadString('\n')
				for err == nil {
					var line string
					if line, err = in.ReadString('\n'); err == nil {
						_, err = fmt.Fprintf(conn, "%s %s", strings.TrimSpace(who), line)
					}
				}
			}()
		}
	}()
	return &echo{l}
}

// dial replaces the network.
func (e *echo) dial(ctx context.Context, _ string, to netip.AddrPort) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", e.listener.Addr().String())
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "%d\n", to.Addr().AsSlice()[3])
	return conn, err
}
