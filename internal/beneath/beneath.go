// Package beneath accesses files below a directory that untrusted programs change. It follows
// links only while they stay below the directory.
//
// It does the same as os.Root, but also in gVisor. There, opening a link with O_DIRECTORY and
// O_NOFOLLOW opens the directory to which it leads, and openat2 is missing, so an os.Root
// follows links out of itself. A Root opens each part of a path with O_PATH and O_NOFOLLOW and
// inspects the opened file, which cannot be replaced any more.
package beneath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrEscape is returned for a path that leads out of its Root.
var ErrEscape = fmt.Errorf("path leads out of its directory: %w", unix.EINVAL)

const (
	maxLinks = 40      // links followed in one path
	maxSteps = 1 << 14 // steps made along one path
)

// A Root is an open directory. Its methods take paths relative to it. They follow relative
// links in them that stay below it. The last part of a path is followed only if a method's
// comment says so. A Root is safe for concurrent use.
type Root struct{ dir *os.File }

// Open opens a directory. It follows links.
func Open(dir string) (*Root, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return &Root{os.NewFile(uintptr(fd), dir)}, nil
}

// Close closes the directory.
func (r *Root) Close() error { return r.dir.Close() }

// Name returns the path with which the Root was opened.
func (r *Root) Name() string { return r.dir.Name() }

// OpenRoot opens a directory below r as another Root. The last part is followed.
func (r *Root) OpenRoot(name string) (*Root, error) {
	var sub *Root
	err := r.at("open", name, true, func(dir int, base string) error {
		fd, err := part(dir, base)
		if err == nil {
			sub = &Root{os.NewFile(uintptr(fd), filepath.Join(r.Name(), name))}
		}
		return err
	})
	return sub, err
}

// OpenFolder opens a directory for reading. It follows no links: if the path contains one, the
// error is ENOTDIR.
func (r *Root) OpenFolder(name string) (*os.File, error) {
	at, err := unix.Openat(int(r.dir.Fd()), ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for _, elem := range strings.Split(path.Clean(name), "/") {
		if err != nil {
			break
		}
		var next int
		next, err = -1, unix.EINVAL
		if elem != ".." {
			next, err = part(at, elem)
		}
		unix.Close(at)
		at = next
	}
	if errors.Is(err, unix.ELOOP) {
		err = unix.ENOTDIR
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(at)
	fd, err := unix.Openat(at, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(r.Name(), name)), nil
}

// Open opens a file or directory for reading. The last part is followed.
func (r *Root) Open(name string) (*os.File, error) { return r.OpenFile(name, os.O_RDONLY, 0) }

// OpenFile opens a file or directory. The last part is followed, unless flags have O_NOFOLLOW
// or O_EXCL. A file is created only with O_EXCL.
func (r *Root) OpenFile(name string, flags int, perm fs.FileMode) (*os.File, error) {
	follow := flags&(unix.O_NOFOLLOW|unix.O_EXCL) == 0
	if follow && flags&unix.O_CREAT != 0 || flags&unix.O_DIRECTORY != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: unix.EINVAL}
	}
	var f *os.File
	err := r.at("open", name, follow, func(dir int, base string) error {
		fd, err := retry(func() (int, error) {
			return unix.Openat(dir, base, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_LARGEFILE, uint32(perm.Perm()))
		})
		if err == nil {
			f = os.NewFile(uintptr(fd), filepath.Join(r.Name(), name))
		}
		return err
	})
	return f, err
}

// Stat describes the file at a path. The last part is followed.
func (r *Root) Stat(name string) (fs.FileInfo, error) { return r.stat(name, true) }

// Lstat describes a file.
func (r *Root) Lstat(name string) (fs.FileInfo, error) { return r.stat(name, false) }

func (r *Root) stat(name string, follow bool) (info fs.FileInfo, err error) {
	err = r.at("stat", name, follow, func(dir int, base string) error {
		fd, err := retry(func() (int, error) {
			return unix.Openat(dir, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		})
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), filepath.Join(r.Name(), name))
		defer f.Close()
		info, err = f.Stat()
		if err == nil && follow && info.Mode().Type() == fs.ModeSymlink {
			return unix.ELOOP
		}
		return err
	})
	return info, err
}

// Mkdir makes a directory.
func (r *Root) Mkdir(name string, perm fs.FileMode) error {
	return r.at("mkdir", name, false, func(dir int, base string) error {
		return unix.Mkdirat(dir, base, uint32(perm.Perm()))
	})
}

// Symlink creates a link with any target.
func (r *Root) Symlink(target, name string) error {
	return r.at("symlink", name, false, func(dir int, base string) error { return unix.Symlinkat(target, dir, base) })
}

// Readlink returns the target of a link.
func (r *Root) Readlink(name string) (target string, err error) {
	err = r.at("readlink", name, false, func(dir int, base string) error {
		target, err = readlink(dir, base)
		return err
	})
	return target, err
}

// Link creates another name of a file.
func (r *Root) Link(from, to string) error {
	return r.at("link", from, false, func(dir int, base string) error {
		return r.at("link", to, false, func(toDir int, toBase string) error {
			return unix.Linkat(dir, base, toDir, toBase, 0)
		})
	})
}

// Rename moves a file or directory and replaces an existing one.
func (r *Root) Rename(from, to string) error {
	return r.at("rename", from, false, func(dir int, base string) error {
		return r.at("rename", to, false, func(toDir int, toBase string) error {
			return unix.Renameat(dir, base, toDir, toBase)
		})
	})
}

// Remove removes a file or an empty directory.
func (r *Root) Remove(name string) error {
	return r.at("remove", name, false, func(dir int, base string) error {
		err := unix.Unlinkat(dir, base, 0)
		if err == nil || !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
			return err
		}
		if derr := unix.Unlinkat(dir, base, unix.AT_REMOVEDIR); !errors.Is(derr, unix.ENOTDIR) {
			return derr
		}
		return err
	})
}

// RemoveAll removes a file, or a directory with its content. It returns nil if there is none.
func (r *Root) RemoveAll(name string) error {
	err := r.at("remove", name, false, removeAll)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeAll removes a name in a directory, with its content.
func removeAll(dir int, base string) error {
	err := unix.Unlinkat(dir, base, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return err
	}
	fd, perr := part(dir, base)
	if perr != nil {
		return err // it is not a directory, or another file replaced it
	}
	defer unix.Close(fd)
	names, err := namesIn(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeAll(fd, name); err != nil {
			return err
		}
	}
	err = unix.Unlinkat(dir, base, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// Lchown changes the owner of a file.
func (r *Root) Lchown(name string, uid, gid int) error {
	return r.at("lchown", name, false, func(dir int, base string) error {
		return unix.Fchownat(dir, base, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
	})
}

// InDir calls f with the open directory that contains a path and the path's last part. f must
// not follow links.
func (r *Root) InDir(name string, f func(dir int, base string) error) error {
	return r.at("change", name, false, f)
}

// InTarget is InDir for the file to which a path leads: if f returns ELOOP because the last part is a
// link, InTarget follows the link and calls f again.
func (r *Root) InTarget(name string, f func(dir int, base string) error) error {
	return r.at("change", name, true, f)
}

// Walk calls f for a path and all files below it, a directory before its content and names in
// order. It follows no links below the path. It omits files that vanish or become links
// during the walk.
func (r *Root) Walk(name string, f func(name string, kind fs.FileMode) error) error {
	info, err := r.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return f(name, info.Mode().Type())
	}
	return r.walk(name, f)
}

func (r *Root) walk(name string, f func(name string, kind fs.FileMode) error) error {
	if err := f(name, fs.ModeDir); err != nil {
		return err
	}
	var names []string
	var kinds []fs.FileMode
	err := r.at("open", name, false, func(dir int, base string) error {
		fd, err := part(dir, base)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if names, err = namesIn(fd); err != nil {
			return err
		}
		slices.Sort(names)
		kinds = make([]fs.FileMode, len(names))
		for i, child := range names {
			kinds[i] = kindOf(fd, child)
		}
		return nil
	})
	if Gone(err) {
		return nil
	}
	for i, child := range names {
		if err != nil {
			break
		}
		switch at := path.Join(name, child); kinds[i] {
		case fs.ModeDir:
			err = r.walk(at, f)
		case fs.ModeIrregular: // it vanished
		default:
			err = f(at, kinds[i])
		}
	}
	return err
}

// Gone reports whether an error means that the file at a walked path is gone or was replaced:
// other programs may change the tree during the call.
func Gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) ||
		errors.Is(err, ErrEscape)
}

// kindOf returns the type of a file in a directory, or ModeIrregular if it does not exist.
func kindOf(dir int, name string) fs.FileMode {
	var st unix.Stat_t
	if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return fs.ModeIrregular
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	}
	return fs.ModeDevice
}

// namesIn returns the names in a directory that is open with O_PATH.
func namesIn(dir int) ([]string, error) {
	fd, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	return f.Readdirnames(-1)
}

// part opens a directory in a directory with O_PATH. The error of a link is ELOOP.
func part(dir int, name string) (int, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		err = unix.ELOOP
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		err = unix.ENOTDIR
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func retry(f func() (int, error)) (int, error) {
	for {
		if fd, err := f(); err != unix.EINTR {
			return fd, err
		}
	}
}

func readlink(dir int, name string) (string, error) {
	for size := 256; ; size *= 2 {
		target := make([]byte, size)
		n, err := unix.Readlinkat(dir, name, target)
		if err != nil {
			return "", err
		}
		if n < size {
			return string(target[:n]), nil
		}
	}
}
