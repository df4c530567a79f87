package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/sandbox/host"
)

// startTimeout bounds Start if ctx has no deadline.
const startTimeout = 30 * time.Second

// Start starts runsc and returns when the guest listens. After an error the sandbox is dead and
// can only be destroyed.
func (d *Driver) Start(ctx context.Context, id string) error {
	s, err := d.base.Find(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return d.startFrom(ctx, s, "")
}

// startFrom starts the sandbox, from a checkpoint's image if image is not empty.
func (d *Driver) startFrom(ctx context.Context, s instance, image string) error {
	if err := d.start(ctx, s, image); err != nil {
		return fmt.Errorf("gvisor: start %s: %w%s", s.id, errors.Join(err, host.End(ctx, s)), s.lastWords())
	}
	return nil
}

func (d *Driver) start(ctx context.Context, s instance, image string) error {
	rec, err := s.record()
	if err != nil {
		return err
	}
	if err := d.base.MarkStarted(s.id); err != nil {
		return err
	}

	if err := s.wall.start(ctx, d.arguments(s, rec, image), rec, image != ""); err != nil {
		return err
	}
	if err := s.awaitGuest(ctx); err != nil {
		return err
	}
	_, _ = s.Alive() // opens the handle on its process for later calls
	return nil
}

// awaitGuest returns when the guest listens, or has ended.
func (s instance) awaitGuest(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := 1; ; n++ {
		conn, err := s.dial(ctx)
		if err == nil {
			return conn.Close()
		}
		if n%32 == 0 {
			if alive, err := s.Alive(); err == nil && !alive {
				return errors.New("the guest ended before it listened")
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the guest to listen: %w", errors.Join(context.Cause(ctx), err))
		case <-tick.C:
		}
	}
}

// Dial connects to the guest's socket.
func (d *Driver) Dial(ctx context.Context, id string) (net.Conn, error) {
	s, err := d.base.Find(id)
	if err != nil {
		return nil, err
	}
	conn, err := s.dial(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		conn, err = s.rouse(ctx, err)
	}
	if err != nil {
		return nil, fmt.Errorf("gvisor: dial %s: %w", id, err)
	}
	return conn, nil
}

// dial connects to the socket in run/guest, a directory to which root in the sandbox can write.
// It looks up only the last element there, and does not follow a link.
func (s instance) dial(ctx context.Context) (net.Conn, error) {
	dir, err := unix.Open(s.run("guest"), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: s.run("guest"), Err: err}
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, socketName, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: socketName, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, errors.New("the guest's socket was replaced by another file")
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, err
	}
	return conn{c.(*net.UnixConn)}, nil
}

// A conn is a connection to the guest. gVisor imports descriptors that are sent over it.
type conn struct{ *net.UnixConn }

// WriteFile writes p together with a descriptor of f.
func (c conn) WriteFile(p []byte, f *os.File) error {
	n, _, err := c.WriteMsgUnix(p, unix.UnixRights(int(f.Fd())), nil)
	if err == nil && n < len(p) { // the descriptor belongs to the first byte
		_, err = c.Write(p[n:])
	}
	return err
}

// wordsLimit bounds the quoted part of a log.
const wordsLimit = 2048

// lastWords returns the ends of the sandbox's logs as a suffix of an error. The sandbox may
// have written them.
func (s instance) lastWords() string {
	var b strings.Builder
	for _, name := range []string{"runsc.log", "panic.log"} {
		if words := tail(s.run("log/" + name)); words != "" {
			fmt.Fprintf(&b, "; %s: %s", name, words)
		}
	}
	if words := printable(s.wall.words()); words != "" {
		b.WriteString("; " + words)
	}
	return b.String()
}

// tail returns the printable part of the first lines of a panic, or else the last lines of a
// file, on one line.
func tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return ""
	}
	buf := make([]byte, min(fi.Size(), wordsLimit))
	n, _ := f.ReadAt(buf, fi.Size()-int64(len(buf)))
	return printable(string(buf[:n]))
}

// printable returns the printable part of a text, on one line.
func printable(text string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)), " ")
}
