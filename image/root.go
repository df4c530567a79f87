package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/layer"
)

// isRoot reports whether this process can change the owner of files. Without root, all of a
// template's files belong to this user, and extended attributes record their owners in the
// template.
func isRoot() bool { return os.Geteuid() == 0 }

// own sets the owner and permissions of an open file or directory.
func own(f *os.File, uid, gid int, mode uint32) error {
	if !isRoot() {
		return layer.Note(f, uid, gid, mode)
	}
	if err := f.Chown(uid, gid); err != nil {
		return err
	}
	return os.NewSyscallError("fchmod", unix.Fchmod(int(f.Fd()), mode))
}

// A rootDir is a root file system. It resolves links as the template's own programs would
// and never leaves the tree: an absolute link target such as "/etc" is the tree's own,
// which an os.Root would refuse.
type rootDir struct{ *os.File }

func openRoot(dir string) (rootDir, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	return rootDir{f}, err
}

// open opens the file at a path.
func (r rootDir) open(name string, flags int) (*os.File, error) {
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK // do not block on a FIFO
	}
	fd, err := unix.Openat2(int(r.Fd()), name, &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// has reports whether a path exists.
func (r rootDir) has(name string) (bool, error) {
	f, err := r.open(name, unix.O_PATH)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, f.Close()
}

// read returns the content of a regular file of at most maxFile bytes.
func (r rootDir) read(name string) ([]byte, error) {
	f, err := r.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is not a regular file or exceeds %d bytes", name, maxFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// write creates or replaces a file and gives it to root. It replaces a link at name itself
// and follows links in name's directory.
func (r rootDir) write(name string, content []byte, mode uint32) error {
	dir, err := r.dir(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	base := path.Base(name)
	if err := unix.Unlinkat(int(dir.Fd()), base, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &os.PathError{Op: "replace", Path: name, Err: err}
	}
	fd, err := unix.Openat(int(dir.Fd()), base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC,
		mode)
	if err != nil {
		return &os.PathError{Op: "create", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(content)
	return errors.Join(err, own(f, 0, 0, mode), f.Close())
}

// dir opens a directory. It creates missing directories on the path.
func (r rootDir) dir(name string) (*os.File, error) {
	d, err := r.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	up, err := r.dir(path.Dir(name))
	if err != nil {
		return nil, err
	}
	defer up.Close()
	if err := unix.Mkdirat(int(up.Fd()), path.Base(name), 0o755); err != nil {
		target := make([]byte, 200)
		if n, lerr := unix.Readlinkat(int(up.Fd()), path.Base(name), target); lerr == nil {
			return nil, fmt.Errorf(
				"%s is a symbolic link to %q, which does not exist in the image; it must be a directory", name,
				target[:n])
		}
		return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return r.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// own sets the owner and permissions of a directory, which it creates if necessary.
func (r rootDir) own(name string, uid, gid int, mode uint32) error {
	d, err := r.dir(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return own(d, uid, gid, mode)
}
