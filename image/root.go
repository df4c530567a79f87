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

// isRoot reports whether this process can give files to others. If not, a template's
// files are this user's, and whose they are in the template is noted at them.
func isRoot() bool { return os.Geteuid() == 0 }

// own gives an open file or directory an owner and permissions.
func own(f *os.File, uid, gid int, mode uint32) error {
	if !isRoot() {
		return layer.Note(f, uid, gid, mode)
	}
	if err := f.Chown(uid, gid); err != nil {
		return err
	}
	return unix.Fchmod(int(f.Fd()), mode)
}

// A rootDir is a root file system whose links are followed as its own programs
// would follow them, which never leads out of it: unlike in an os.Root, "/etc" as
// the target of a link is the tree's own.
type rootDir struct{ *os.File }

func openRoot(dir string) (rootDir, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	return rootDir{f}, err
}

// open opens what a path leads to.
func (r rootDir) open(name string, flags int) (*os.File, error) {
	if flags&unix.O_PATH == 0 {
		flags |= unix.O_NONBLOCK // for a FIFO
	}
	fd, err := unix.Openat2(int(r.Fd()), name, &unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// has reports whether a path leads to something.
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

// read returns the content of a regular file.
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
		return nil, fmt.Errorf("%s is no file, or has more than %d bytes", name, maxFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// write puts a file of root's in the place of what is there, if anything: links are
// replaced, those to its directory are followed.
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
	fd, err := unix.Openat(int(dir.Fd()), base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return &os.PathError{Op: "create", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(content)
	return errors.Join(err, own(f, 0, 0, mode), f.Close())
}

// dir opens a directory, which it makes with those above it.
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
			return nil, fmt.Errorf("%s is a symbolic link to %q, which the image does not have; it must be a directory", name, target[:n])
		}
		return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return r.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// own gives a directory, which is made, and nothing in it an owner and permissions.
func (r rootDir) own(name string, uid, gid int, mode uint32) error {
	d, err := r.dir(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return own(d, uid, gid, mode)
}
