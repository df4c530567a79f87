package drivertest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth/sandbox"
)

// replaceSocket replaces the guest's socket with other files, to redirect the server's next
// Dial.
func (s attacks) replaceSocket(t *testing.T) {
	if s.Socket == "" {
		t.Skip("skipped: this driver's guest has no socket in a file system")
	}
	d := s.open(t)
	hostPath := filepath.Join(t.TempDir(), "host.sock")
	l, err := net.Listen("unix", hostPath)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i, script := range []string{
		"rm -f $S && ln -s " + hostPath + " $S",
		"rm -f $S && ln -s /proc/1/root" + hostPath + " $S",
		"rm -f $S && mkdir $S",
		"rm -f $S && mkfifo $S",
		"rm -f $S && head -c 100000 /dev/zero >$S",
		"rm -f $S; chmod 000 $(dirname $S)",
	} {
		b := Start(t, d, sandbox.Spec{ID: fmt.Sprintf("liar-%d", i), Template: s.Template})
		b.Must("sudo sh -c 'S=" + s.Socket + "; " + script + "'")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if conn, err := d.Dial(ctx, b.ID); err == nil {
			conn.Close()
			t.Errorf("%s: Dial got a connection", script)
		}
		cancel()
		b.Answers() // on the existing connection
		if err := d.Destroy(t.Context(), b.ID); err != nil {
			t.Errorf("%s: Destroy: %v", script, err)
		}
		if _, err := os.Stat(hostPath); err != nil {
			t.Errorf("%s: the host's socket: %v", script, err)
		}
	}
	l.(*net.UnixListener).SetDeadline(time.Now().Add(50 * time.Millisecond))
	if conn, err := l.Accept(); err == nil {
		conn.Close()
		t.Error("the server connected to a socket of the host")
	}
}

// fillSocketDirectory writes into a directory of the host that is visible in the sandbox.
func (s attacks) fillSocketDirectory(t *testing.T) {
	if s.Socket == "" {
		t.Skip("skipped: this driver's guest has no socket in a file system")
	}
	d := s.open(t)
	b := Start(t, d, sandbox.Spec{ID: "filler", Template: s.Template})
	dir := filepath.Dir(s.Socket)
	b.Must("sudo test -S " + s.Socket)
	if r := b.Sh("sudo dd if=/dev/zero of=" + dir + "/fill bs=1M count=64"); r.Code == 0 {
		t.Errorf("64 MiB into %s: got %+v, want no space left", dir, r)
	}
	r := b.Sh("sudo sh -c 'for i in $(seq 1000); do : >" + dir + "/f$i || exit 1; done'")
	if r.Code == 0 {
		t.Errorf("1000 files into %s: got %+v, want no space left", dir, r)
	}
	b.Answers()
	if err := Attach(t, d, b.ID).Client.Ping(t.Context()); err != nil {
		t.Errorf("a new connection: %v", err)
	}
}
