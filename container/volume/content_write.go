package volume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/beneath"
)

const (
	copyBuffer  = 256 << 10 // bytes
	namesAtOnce = 512       // read from a directory

	// removeLevels is how many directories below each other are open at the same time while they are removed.
	removeLevels = 8
	// removePasses is how often a directory is read again to remove files that sandboxes add during the removal.
	removePasses = 10_000
)

// MaxMode is the largest mode of a file that clients may set.
const MaxMode = 0o777

// Attributes are what clients set of a file. Nil means the default, or no change.
type Attributes struct {
	UID, GID *uint32
	Mode     *uint32 // at most MaxMode
}

// owner returns the owner of a new file: by default the user that commands run as.
func (a Attributes) owner() (uid, gid int) {
	if os.Geteuid() != 0 { // in tests
		return os.Geteuid(), os.Getegid()
	}
	return int(or(a.UID, user)), int(or(a.GID, user))
}

func or(v *uint32, otherwise uint32) uint32 {
	if v == nil {
		return otherwise
	}
	return *v
}

// Set changes the attributes of a file or directory. It follows links.
func (c *Content) Set(name string, a Attributes) (*Entry, error) {
	at, err := local(name)
	if err != nil {
		return nil, err
	}
	err = c.root.InTarget(at, func(dir int, base string) error { return set(dir, base, a) })
	if err != nil {
		return nil, fault("change", at, err)
	}
	return c.Stat(at)
}

// set changes the attributes of a file that is not a link.
func set(dir int, base string, a Attributes) error {
	return hold(dir, base, func(held string, st *unix.Stat_t) error {
		if a.UID != nil || a.GID != nil {
			if err := os.Chown(held, int(or(a.UID, st.Uid)), int(or(a.GID, st.Gid))); err != nil {
				return err
			}
		}
		if a.Mode == nil {
			return nil
		}
		return os.Chmod(held, os.FileMode(*a.Mode&MaxMode))
	})
}

// Mkdir makes a directory, with mode 0755 by default. With force it also makes the directories above it,
// and accepts one that exists, which it leaves as it is.
func (c *Content) Mkdir(name string, a Attributes, force bool) (*Entry, error) {
	at, err := local(name)
	if err != nil {
		return nil, err
	}
	if err := c.mayWrite(); err != nil {
		return nil, err
	}
	if force {
		if err := c.mkdirAll(path.Dir(at), a); err != nil {
			return nil, fault("make directory", at, err)
		}
	}
	err = c.mkdir(at, a)
	if errors.Is(err, unix.EEXIST) && force {
		if info, serr := c.root.Stat(at); serr == nil && info.IsDir() {
			err = nil
		}
	}
	if err != nil {
		return nil, fault("make directory", at, err)
	}
	return c.Stat(at)
}

// mayWrite returns an error while the host's disk has no space.
func (c *Content) mayWrite() error {
	if c.space == nil {
		return nil
	}
	return c.space()
}

// mkdirAll makes a directory and those above it, unless they exist.
func (c *Content) mkdirAll(at string, a Attributes) error {
	parts := strings.Split(at, "/")
	if len(parts) > MaxDepth {
		return berth.Invalid("path", "Invalid 'path': expected at most %d directories.", MaxDepth)
	}
	a.Mode = nil
	for i := range parts {
		above := path.Join(parts[:i+1]...)
		info, err := c.root.Stat(above)
		if errors.Is(err, unix.ENOENT) {
			if err = c.mkdir(above, a); errors.Is(err, unix.EEXIST) { // another request or a sandbox made it
				info, err = c.root.Stat(above)
			}
		}
		if err != nil {
			return err
		}
		if info != nil && !info.IsDir() {
			return unix.ENOTDIR
		}
	}
	return nil
}

// mkdir makes a directory.
func (c *Content) mkdir(at string, a Attributes) error {
	if at == "." {
		return unix.EEXIST
	}
	uid, gid := a.owner()
	mode := or(a.Mode, 0o755)
	return c.root.InDir(at, func(dir int, base string) error {
		if err := unix.Mkdirat(dir, base, 0o700); err != nil {
			return os.NewSyscallError("mkdirat", err)
		}
		owner, group := uint32(uid), uint32(gid)
		return set(dir, base, Attributes{UID: &owner, GID: &group, Mode: &mode})
	})
}

// Write writes a regular file, with mode 0644 by default. With force it also makes the directories above
// it, and replaces a file, whose attributes stay unless a has others. The file appears whole or not at
// all. It follows links.
func (c *Content) Write(ctx context.Context, name string, a Attributes, force bool, content io.Reader) (*Entry, error) {
	at, err := local(name)
	if err != nil {
		return nil, err
	}
	if err := c.mayWrite(); err != nil {
		return nil, err
	}
	if force {
		if err := c.mkdirAll(path.Dir(at), a); err != nil {
			return nil, fault("write file", at, err)
		}
	}
	err = c.root.InTarget(at, func(dir int, base string) error { return write(ctx, dir, base, a, force, content) })
	if err != nil {
		return nil, fault("write file", at, err)
	}
	return c.Stat(at)
}

// write writes a file in a directory. The error for a link is ELOOP.
func write(ctx context.Context, dir int, base string, a Attributes, force bool, content io.Reader) error {
	if base == "." {
		return unix.EISDIR
	}
	uid, gid := a.owner()
	mode := or(a.Mode, 0o644)
	err := hold(dir, base, func(_ string, st *unix.Stat_t) error {
		switch kind := st.Mode & unix.S_IFMT; {
		case kind == unix.S_IFDIR:
			return unix.EISDIR
		case kind != unix.S_IFREG:
			return errNotRegular
		case !force:
			return unix.EEXIST
		}
		uid, gid, mode = int(or(a.UID, st.Uid)), int(or(a.GID, st.Gid)), or(a.Mode, st.Mode&MaxMode)
		return nil
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	// The file has no name until it is complete, so that nothing is left of it after a crash.
	fd, err := unix.Openat(dir, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	f := os.NewFile(uintptr(fd), base)
	defer f.Close()
	if err := copyTo(ctx, f, content); err != nil {
		return err
	}
	if err := errors.Join(f.Chown(uid, gid), f.Chmod(os.FileMode(mode&MaxMode)), f.Sync()); err != nil {
		return err
	}
	if err := link(f, dir, base, force); err != nil {
		return err
	}
	return f.Sync() // its name
}

// copyTo copies a client's content to a file.
func copyTo(ctx context.Context, to *os.File, from io.Reader) error {
	buf := make([]byte, copyBuffer)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := from.Read(buf)
		if _, werr := to.Write(buf[:n]); werr != nil {
			return werr
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &berth.Error{Code: berth.CodeInvalid,
				Message: "The request body is incomplete or does not match its Content-Encoding.", Err: err}
		}
	}
}

// link gives a file without a name one in a directory. With force it replaces a file.
func link(f *os.File, dir int, base string, force bool) error {
	as := func(name string) error {
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), dir, name, unix.AT_SYMLINK_FOLLOW)
	}
	err := as(base)
	if !errors.Is(err, unix.EEXIST) || !force {
		return err
	}
	temp := ".berth-" + rand.Text()
	if err := as(temp); err != nil {
		return err
	}
	if err := unix.Renameat(dir, temp, dir, base); err != nil {
		return errors.Join(err, unix.Unlinkat(dir, temp, 0))
	}
	return nil
}

// Remove removes a file, or a directory with its content. It does not follow a link in the last part.
func (c *Content) Remove(ctx context.Context, name string) error {
	at, err := local(name)
	if err != nil {
		return err
	}
	if at == "." {
		return berth.Invalid("path", "The root of a volume cannot be removed. Remove the files in it.")
	}
	err = c.root.InDir(at, func(dir int, base string) error {
		err := unix.Unlinkat(dir, base, 0)
		if !errors.Is(err, unix.EISDIR) {
			return os.NewSyscallError("unlinkat", err)
		}
		return removeTree(ctx, dir, base)
	})
	return fault("remove", at, err)
}

// removeTree removes a directory with its content. It needs few open files and little memory, whatever the
// content is: directories that are too deep are moved up first.
func removeTree(ctx context.Context, dir int, base string) error {
	top, err := openFolder(dir, base)
	if err != nil {
		return err
	}
	defer top.Close()
	if err := empty(ctx, top, top, 1); err != nil {
		return err
	}
	return os.NewSyscallError("unlinkat", unix.Unlinkat(dir, base, unix.AT_REMOVEDIR))
}

// empty removes the content of a directory at a level below top, which is at level 1.
func empty(ctx context.Context, top, folder *os.File, level int) error {
	for range removePasses {
		n, err := removeNames(ctx, top, folder, level)
		if err != nil || n == 0 {
			return err
		}
	}
	return unix.ENOTEMPTY
}

// removeNames removes the files in a directory, and returns how many there were.
func removeNames(ctx context.Context, top, folder *os.File, level int) (n int, err error) {
	if _, err := folder.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	for {
		names, err := folder.Readdirnames(namesAtOnce)
		if len(names) == 0 && (err == nil || errors.Is(err, io.EOF)) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n += len(names)
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return n, err
			}
			if err := removeName(ctx, top, folder, name, level); err != nil && !beneath.Gone(err) {
				return n, err
			}
		}
	}
}

// removeName removes a file or a directory in a directory at a level.
func removeName(ctx context.Context, top, folder *os.File, name string, level int) error {
	at := int(folder.Fd())
	err := unix.Unlinkat(at, name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return os.NewSyscallError("unlinkat", err)
	}
	if level == removeLevels {
		return os.NewSyscallError("renameat", unix.Renameat(at, name, int(top.Fd()), ".berth-"+rand.Text()))
	}
	sub, err := openFolder(at, name)
	if err != nil {
		return err
	}
	defer sub.Close()
	if err := empty(ctx, top, sub, level+1); err != nil {
		return err
	}
	return os.NewSyscallError("unlinkat", unix.Unlinkat(at, name, unix.AT_REMOVEDIR))
}

// openFolder opens a directory in a directory for reading. It does not follow a link.
func openFolder(dir int, name string) (*os.File, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("openat", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
