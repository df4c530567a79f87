package container_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/sandbox/drivertest"
)

func sleepsSoon(o *container.Options) { o.SleepAfter = 4 * time.Second }

func (c inhabited) asleep() bool {
	c.Helper()
	got, err := c.k.Get(c.Context(), byBench.Project, c.id)
	if err != nil {
		c.Fatal(err)
	}
	return got.Berth.Asleep
}

// untilAsleep waits until the container sleeps.
func (c inhabited) untilAsleep() {
	c.Helper()
	for end := time.Now().Add(2 * time.Minute); !c.asleep(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.Fatal("the container does not sleep")
		}
	}
}

// connect connects to a port, which the connection does not hold.
func (c inhabited) connect(port int) net.Conn {
	c.Helper()
	dial, release, err := c.k.Access().Port(c.Context(), byBench, c.id, port)
	if err != nil {
		c.Fatal(err)
	}
	defer release()
	conn, err := dial(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { conn.Close() })
	return conn
}

// file returns the content of a file.
func (c inhabited) file(path string) string {
	c.Helper()
	client, release, err := c.k.Access().Guest(c.Context(), byBench, c.id)
	if err != nil {
		c.Fatal(err)
	}
	defer release()
	body, _, err := client.ReadFile(c.Context(), "", path, "")
	if err != nil {
		c.Fatal(err)
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	if err != nil {
		c.Fatal(err)
	}
	return string(content)
}

// answering is a server that answers each line on port 7000.
const answering = `cat >/tmp/echo.py <<'END'
import _thread, socket
def serve(c):
    for line in c.makefile("rb"): c.sendall(line)
s = socket.socket()
s.bind(("127.0.0.1", 7000))
s.listen()
while True: _thread.start_new_thread(serve, (s.accept()[0],))
END
setsid python3 /tmp/echo.py >/dev/null 2>&1 </dev/null &
until (exec 3<>/dev/tcp/127.0.0.1/7000) 2>/dev/null; do sleep .01; done
`

// A server in a container that sleeps answers new connections and open ones, commands run in the
// directory of the last one, and files are read.
func TestSleepOnGVisor(t *testing.T) {
	t.Parallel() // with the others that mostly wait
	k, _ := newGVisorServicesOn(t, drivertest.Rootfs(t), sleepsSoon)
	c := inhabit(t, k, container.CreateRequest{})
	c.sh(answering + "echo content >file; cd /tmp; export WORD=kept")
	open := c.connect(7000)
	answer := func(conn net.Conn, line string) {
		t.Helper()
		fmt.Fprintln(conn, line)
		if got, err := bufio.NewReader(conn).ReadString('\n'); err != nil || got != line+"\n" {
			t.Fatalf("got %q, %v, want %q", got, err, line)
		}
	}
	answer(open, "before")
	for range 2 {
		c.untilAsleep()
		answer(open, "a byte of an open connection")
		c.untilAsleep()
		answer(c.connect(7000), "a new connection")
		c.untilAsleep()
		if got := c.sh("echo $WORD; pwd"); got != "kept\n/tmp\n" {
			t.Errorf("got %q", got)
		}
		c.untilAsleep()
		if got := c.file("/mnt/data/file"); got != "content\n" {
			t.Errorf("got %q", got)
		}
	}
	c.untilAsleep()
	stats, err := k.Stats(t.Context(), byBench.Project, c.id)
	if err != nil || stats.CPUSeconds == 0 || stats.Memory.Bytes == 0 {
		t.Errorf("got %+v, %v", stats, err)
	}
}

// A process that computes keeps its container awake, and so does keep_awake. A timer that is due
// while the container sleeps fires when it wakes.
func TestSleepAndTimersOnGVisor(t *testing.T) {
	t.Parallel()
	k, _ := newGVisorServicesOn(t, drivertest.Rootfs(t), sleepsSoon)
	busy := inhabit(t, k, container.CreateRequest{})
	const begun = "\nuntil test -e /tmp/begun; do sleep .01; done"
	busy.sh("setsid sh -c '>/tmp/begun; while :; do :; done' >/dev/null 2>&1 </dev/null &" + begun)
	awake := inhabit(t, k, container.CreateRequest{Source: berth.ContainerSource{KeepAwake: true}})
	timer := inhabit(t, k, container.CreateRequest{})
	const tick = "setsid sh -c '>/tmp/begun; sleep 8; echo fired >/tmp/fired' >/dev/null 2>&1 </dev/null &" + begun
	awake.sh(tick)
	timer.sh(tick)
	for range 3 {
		timer.untilAsleep()
		if busy.asleep() {
			t.Fatal("a container sleeps while its process computes")
		}
		if awake.asleep() {
			t.Fatal("a container with keep_awake sleeps")
		}
		timer.sh("true")
	}
	for name, c := range map[string]inhabited{"awake": awake, "timer": timer} {
		if got := c.sh(until("/tmp/fired")); got != "fired\n" {
			t.Errorf("%s: the timer has not fired: %q", name, got)
		}
	}
}

// A connection to the outside stays open while its container sleeps. Data that arrives wakes it.
func TestSleepKeepsEgressOnGVisor(t *testing.T) {
	for name, c := range map[string]struct{ domain, host string }{
		"by name":    {"a.example:7", "a.example"},
		"by address": {"198.51.100.7:7", "198.51.100.7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule, err := egress.ParseRule(c.domain)
			if err != nil {
				t.Fatal(err)
			}
			remote := make(chan net.Conn, 1)
			k, _ := newGVisorServicesOn(t, drivertest.Rootfs(t), sleepsSoon, func(o *container.Options) {
				o.Network.Private = []egress.Rule{rule}
				o.Network.Lookup = func(context.Context, string) ([]netip.Addr, error) {
					return []netip.Addr{netip.MustParseAddr("198.51.100.7")}, nil
				}
				o.Network.Dial = func(context.Context, string, netip.AddrPort) (net.Conn, error) {
					ours, theirs := net.Pipe()
					remote <- ours
					return theirs, nil
				}
			})
			in := inhabit(t, k,
				container.CreateRequest{NetworkPolicy: &berth.NetworkPolicy{Type: "allowlist",
					AllowedDomains: []string{c.domain}}})
			in.sh(strings.ReplaceAll(`cat >/tmp/talk.py <<'END'
import socket
s = socket.create_connection(("HOST", 7))
open("/tmp/begun", "w")
f = s.makefile("rw")
for line in f: f.write("got " + line); f.flush()
END
setsid python3 /tmp/talk.py >/tmp/talk 2>&1 </dev/null &
until test -e /tmp/begun; do sleep .01; done`, "HOST", c.host))
			var conn net.Conn
			select {
			case conn = <-remote:
			case <-time.After(time.Minute):
				t.Fatalf("the container does not connect: %s", in.sh("cat /tmp/talk"))
			}
			defer conn.Close()
			read := bufio.NewReader(conn)
			for i := range 3 {
				in.untilAsleep()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				fmt.Fprintf(conn, "word %d\n", i)
				if got, err := read.ReadString('\n'); err != nil || got != fmt.Sprintf("got word %d\n", i) {
					t.Fatalf("got %q, %v", got, err)
				}
			}
		})
	}
}
