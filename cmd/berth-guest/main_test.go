package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/guest"
)

// childEnv makes the test binary run as the guest, PID 1 of its namespace.
const childEnv = "BERTH_TEST_GUEST"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	for _, err := range []error{
		unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
	} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	main()
}

// A pidOne is a guest that is PID 1 of its own namespace.
type pidOne struct {
	t      testing.TB
	client *guest.Client
	calls  int
}

func startPIDOne(t testing.TB) *pidOne {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may make a PID namespace")
	}
	dir, err := os.MkdirTemp("", "guest-*") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	cmd := exec.Command("/proc/self/exe", "-user", me.Username, "-workdir", filepath.Join(dir, "work"), "-state",
		filepath.Join(dir, "state"))
	cmd.Env = append(os.Environ(), childEnv+"=1", "BERTH_GUEST_SOCKET="+socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Skipf("no PID namespace: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	p := &pidOne{t: t, client: guest.NewClient(func(ctx context.Context) (net.Conn, error) {
		for { // until it listens
			conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
			if err == nil || ctx.Err() != nil {
				return conn, err
			}
			time.Sleep(5 * time.Millisecond)
		}
	})}
	t.Cleanup(func() { p.client.Close() })
	return p
}

// sh runs a command and returns its output on both streams.
func (p *pidOne) sh(script string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 30*time.Second)
	defer cancel()
	p.calls++
	var out strings.Builder
	for ev, err := range p.client.Shell(ctx, guest.ShellCall{CallID: fmt.Sprintf("call-%d", p.calls),
		Commands: []string{script}, Timeout: 20 * time.Second}) {
		if err != nil {
			p.t.Fatalf("%s: %v", script, err)
		}
		out.Write(ev.Data)
		if ev.Kind == guest.ShellTimeout {
			p.t.Errorf("%s: timed out", script)
		}
	}
	return out.String()
}

// Commands do not inherit the guest's ignored signals.
func TestCommandsHearSignals(t *testing.T) {
	p := startPIDOne(t)
	const library = 1<<31 | 1<<32 // signals 32 and 33 are the C library's own
	got := p.sh("grep SigIgn /proc/self/status")
	if ignored, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(got, "SigIgn:")), 16, 64); err != nil ||
		ignored&^library != 0 {
		t.Errorf("a command ignores signals: %s, %v", got, err)
	}
	if got := p.sh("yes | head -1"); got != "y\n" {
		t.Errorf("a broken pipe: got %q", got)
	}
	if got := p.sh("sleep 300 & kill $!; wait $!; echo $?"); !strings.HasSuffix(got, "143\n") {
		t.Errorf("SIGTERM to a background process: got %q", got)
	}
}

// No signal from inside ends PID 1.
func TestSignalsFromInside(t *testing.T) {
	p := startPIDOne(t)
	for s := unix.Signal(1); s <= lastRealTime; s++ {
		p.sh(fmt.Sprintf("kill -%d 1", s))
	}
	if got := p.sh("echo here"); got != "here\n" {
		t.Errorf("after every signal: got %q", got)
	}
}

// Orphans are reaped, also while a process that the guest started itself has ended
// and its output is still held open.
func TestReap(t *testing.T) {
	p := startPIDOne(t)
	proc, err := p.client.Start(t.Context(), guest.ProcessRequest{Cmd: "sh",
		Args: []string{"-c", "sleep 300 & echo up"}})
	if err != nil {
		t.Fatal(err)
	}
	for range proc.Events() {
		break
	}
	p.sh("for i in 1 2 3 4 5; do (sh -c 'sleep 0.01 & exit' &); done")
	if got := p.sh(
		"for i in $(seq 500); do n=$(ps -eo stat= | grep -c Z); [ $n = 0 ] && break; sleep 0.01; done; echo $n"); got != "0\n" {
		t.Errorf("zombies left: %s", got)
	}
}
