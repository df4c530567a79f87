package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestHangup sends SIGHUP to a server without a terminal and to one under nohup, which reload their
// configuration, and closes the terminal of another, which stops in order. Commands in containers continue.
func TestHangup(t *testing.T) {
	s := newServer(t)
	s.kill()
	p := &planted{server: s}
	id, reloads := "", 0
	// as nohup does; and for parents that ignore it
	for _, signals := range []string{"--ignore-signal=HUP", "--default-signal=HUP"} {
		s.attr = &syscall.SysProcAttr{Setsid: true}
		s.wrap = []string{"env", signals}
		s.start()
		if id == "" {
			id = p.create("/containers", `{"name":"work"}`)
			p.shell(id, "echo precious >/mnt/data/file")
		}
		for range 3 {
			if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			reloads++
			s.waitUntil("the log shows the reload", func() bool {
				return strings.Count(s.log.String(), "reloaded the configuration") >= reloads
			})
		}
		p.want("a file after SIGHUP", p.shell(id, "cat /mnt/data/file"), "precious")
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("the end: got %v", err)
		}
	}

	master, slave := terminal(t)
	s.attr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	s.files = []*os.File{slave}
	s.start()
	slave.Close()
	p.want("a file after the restart", p.shell(id, "cat /mnt/data/file"), "precious")
	master.Close()
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil || !strings.Contains(s.log.String(), "stopping; responses and sandboxes continue") {
			t.Errorf("when its terminal is closed: got %v, and no orderly stop in the log:\n%s", err, s.log)
		}
	case <-time.After(time.Minute):
		_ = s.cmd.Process.Kill()
		t.Fatal("the server does not end with its terminal")
	}
	s.attr, s.files = nil, nil
	s.start()
	p.want("a file after the end of the terminal", p.shell(id, "cat /mnt/data/file"), "precious")
}

// terminal returns both ends of a new pseudo-terminal.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}
