package microvm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// startTimeout bounds Start if ctx has no deadline. Under emulation a start takes three seconds
// of CPU time, and many may run concurrently.
const startTimeout = 3 * time.Minute

// A kernel sometimes hangs at its start, mostly under emulation. After this time without a
// guest the machine is ended and started again, once.
const (
	patience         = 20 * time.Second
	patienceEmulated = time.Minute
)

var errHangs = errors.New("its guest does not come up")

// errCrashed means that a signal has ended QEMU before its guest listened. QEMU 7.2 sometimes crashes at the start of
// an emulated machine.
var errCrashed = errors.New("the machine crashed before its guest listened")

// Start starts QEMU and returns when the guest listens. After an error the sandbox is dead and
// can only be destroyed.
func (d *Driver) Start(ctx context.Context, id string) error {
	s, err := d.base.Find(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := d.start(ctx, s); err != nil {
		return fmt.Errorf("microvm: start %s: %w", id, errors.Join(err, host.End(ctx, s)))
	}
	return nil
}

// start starts the machine, and once more if it hangs or crashes.
func (d *Driver) start(ctx context.Context, s instance) error {
	rec, err := s.record()
	if err != nil {
		return err
	}
	if err := d.base.MarkStarted(s.id); err != nil {
		return err
	}
	first, cancel := context.WithTimeoutCause(ctx, d.patience, errHangs)
	defer cancel()
	err = d.boot(first, s, rec)
	switch {
	case err != nil && context.Cause(first) == errHangs:
		d.log.Warn("microvm: a machine hangs and is started again", "sandbox", s.id, "after", d.patience, "err", err)
	case errors.Is(err, errCrashed):
		d.log.Warn("microvm: a machine crashed and is started again", "sandbox", s.id, "err", err)
	default:
		return err
	}
	if err := d.renew(ctx, s, rec); err != nil {
		return fmt.Errorf("end what a failed start has left: %w", err)
	}
	return d.boot(ctx, s, rec)
}

// renew ends the processes of a sandbox that has not started, and creates the cgroup and the
// disk that they may have used again.
func (d *Driver) renew(ctx context.Context, s instance, rec record) error {
	if err := host.End(ctx, s); err != nil {
		return err
	}
	if err := s.cgroup.Remove(ctx); err != nil {
		return err
	}
	if err := d.makeGroup(s, rec.Limits, len(rec.Mounts) > 0); err != nil {
		return err
	}
	return makeDisk(ctx, s.path(sealed), rec.Limits.Disk)
}

// boot starts QEMU and returns when the guest listens. An error includes the messages of both.
func (d *Driver) boot(ctx context.Context, s instance, rec record) (err error) {
	console := &console{}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w%s%s", err, console.words(), s.qemuWords())
		}
	}()
	cmd, err := d.launch(s, rec)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	if err := sandbox.WriteFile(s.path("pid"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return err
	}
	if conn, err := s.connect(ctx, "console"); err == nil {
		defer conn.Close()
		go console.listen(conn)
	}
	err = s.awaitGuest(ctx, ended)
	if err == nil || ctx.Err() != nil {
		return err
	}
	select { // the connection to the guest may end before the process has
	case <-ended:
	case <-time.After(endTime):
		return err
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		err = fmt.Errorf("%w: %v: %w", errCrashed, status.Signal(), err)
	}
	return err
}

// endTime is how long a process may take to end after its sockets have.
const endTime = 5 * time.Second

// launch starts QEMU with the sandbox's files and sockets.
func (d *Driver) launch(s instance, rec record) (*exec.Cmd, error) {
	log, err := os.OpenFile(s.path("qemu.log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	l := launch{driver: d, kvm: !d.machine.emulated(), uid: rec.UID, cgroup: s.cgroup, args: d.machine.args(rec.Limits,
		len(rec.Mounts) > 0),
		log: log, size: rec.Limits.Disk}
	if len(rec.Mounts) > 0 {
		l.size = max(l.size, rec.Limits.Memory) // the memory is a file then
	}
	defer func() {
		for _, f := range l.files {
			f.Close()
		}
	}()
	add := func(f *os.File, err error) error {
		if err == nil {
			l.files = append(l.files, f)
		}
		return err
	}
	if err := add(statefile.Open(rec.Image)); err != nil {
		return nil, err
	}
	if err := add(statefile.OpenFile(s.path(diskFile), os.O_RDWR|unix.O_NOFOLLOW)); err != nil {
		return nil, err
	}
	names := []string{"monitor", "console"}
	for i := range ports {
		names = append(names, portName(i))
	}
	for _, name := range names {
		if err := add(s.listen(name)); err != nil {
			return nil, err
		}
	}
	if len(rec.Mounts) > 0 {
		if err := add(d.startShare(s, rec)); err != nil {
			return nil, err
		}
	}
	return l.start()
}

// awaitGuest returns when the guest listens, or QEMU has ended.
func (s instance) awaitGuest(ctx context.Context, ended <-chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-ended:
			cancel(errors.New("the machine ended before its guest listened"))
		case <-stop:
		}
	}()
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Await(ctx); err != nil {
		return fmt.Errorf("wait for the guest to listen: %w", err)
	}
	return nil
}

// listen creates a socket of the sandbox and returns it, for QEMU to accept on.
func (s instance) listen(name string) (*os.File, error) {
	dir, err := unix.Open(s.path("run"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	defer unix.Close(dir)
	if err := unix.Unlinkat(dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) { // of a failed start
		return nil, os.NewSyscallError("unlinkat", err)
	}
	// A descriptor is used because a socket's path must be short.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir, name)})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	return l.File()
}

// connect connects to a socket of the sandbox. Only this process uses the directory: QEMU does
// not see it.
func (s instance) connect(ctx context.Context, name string) (net.Conn, error) {
	dir, err := unix.Open(s.path("run"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: s.path("run"), Err: err}
	}
	defer unix.Close(dir)
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir, name))
}

// connectFile connects to a socket of the sandbox, for another process.
func (s instance) connectFile(name string) (*os.File, error) {
	conn, err := s.connect(context.Background(), name)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*net.UnixConn).File()
}

// A console records the end of a machine's output while it starts.
type console struct {
	mu   sync.Mutex
	text []byte
}

// consoleSize bounds the recorded console output.
const consoleSize = 8 << 10

func (c *console) listen(conn net.Conn) {
	buf := make([]byte, consoleSize)
	for {
		n, err := conn.Read(buf)
		c.mu.Lock()
		c.text = append(c.text, buf[:n]...)
		c.text = c.text[max(0, len(c.text)-consoleSize):]
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// words returns the recorded output as a suffix of an error.
func (c *console) words() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return quote("console", c.text)
}

// qemuWords returns QEMU's output as a suffix of an error.
func (s instance) qemuWords() string {
	raw, _ := os.ReadFile(s.path("qemu.log"))
	return quote("qemu", raw[max(0, len(raw)-consoleSize):])
}

// quote returns the printable part of a text, on one line.
func quote(who string, text []byte) string {
	words := strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, string(text))), " ")
	if words == "" {
		return ""
	}
	return "; " + who + ": " + words
}
