package container_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// serving starts a server that answers each connection with its name, on a port of the sandbox.
const serving = `cat >/tmp/serve.py <<'END'
import socket, sys
l = socket.create_server(("127.0.0.1", int(sys.argv[2])))
open("/tmp/ready" + sys.argv[2], "w").close()
while True:
    c, _ = l.accept()
    c.sendall((sys.argv[1] + " got ").encode() + c.recv(100)); c.close()
END
setsid python3 /tmp/serve.py %[1]s %[2]d >/dev/null 2>&1 </dev/null &
until test -e /tmp/ready%[2]d; do sleep .01; done`

// dialing connects to a host and a port and prints the answer, or the error.
const dialing = `python3 -c 'import socket, sys
try:
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=30)
    s.sendall(b"hi"); print(s.recv(100).decode())
except OSError as err: print(type(err).__name__)' %s %d`

func inGroup(group, name string) container.CreateRequest {
	return container.CreateRequest{Name: name, Source: berth.ContainerSource{Network: &berth.GroupNetwork{Group: group,
		Name: name}}}
}

// Sandboxes of a group reach each other by name at any port, without a network card and with no other way out. Ports
// that nothing listens on are refused before a connection is made.
func TestNeighbourSandboxes(t *testing.T) {
	k, _ := newGVisorServicesOn(t, drivertest.Rootfs(t))
	app, db := inhabit(t, k, inGroup("task-7", "app")), inhabit(t, k, inGroup("task-7", "db"))
	stranger, alone := inhabit(t, k, inGroup("task-8", "app")), inhabit(t, k, container.CreateRequest{Name: "alone"})
	dial := func(from inhabited, host string, port int, want string) {
		t.Helper()
		if got := strings.TrimSpace(from.sh(fmt.Sprintf(dialing, host, port))); got != want {
			t.Errorf("%s:%d: got %q, want %q", host, port, got, want)
		}
	}
	dial(app, "db", 5432, "ConnectionRefusedError") // before anything listens, and again afterwards
	db.sh(fmt.Sprintf(serving, "db", 5432))
	dial(app, "db", 5432, "db got hi")
	db.sh(fmt.Sprintf(serving, "tls", 443))
	dial(app, "db", 443, "tls got hi")
	app.sh(fmt.Sprintf(serving, "app", 8000))
	dial(db, "app", 8000, "app got hi")
	dial(app, "app", 8000, "app got hi")
	for _, from := range []inhabited{stranger, alone} {
		dial(from, "db", 5432, "gaierror")
	}
	for _, host := range []string{"example.com", "localhost.db", "db.task-7", "1.1.1.1", "198.18.0.77"} {
		want := "ConnectionRefusedError"
		if strings.ContainsAny(host, "abcdefgh") {
			want = "gaierror"
		}
		dial(app, host, 80, want)
	}
	if err := k.Delete(t.Context(), byBench.Project, db.id); err != nil {
		t.Fatal(err)
	}
	again := inhabit(t, k, inGroup("task-7", "db"))
	again.sh(fmt.Sprintf(serving, "second", 5432))
	loop := `for i in $(seq 100); do ` + fmt.Sprintf(dialing, "db", 5432) + ` | grep second && break; sleep .1; done`
	if got := app.sh(loop); got != "second got hi\n" {
		t.Errorf("a container that took the name: got %q", got)
	}
}
