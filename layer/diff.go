package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Differ writes the changes in a tree.
type Differ struct {
	// Root is the root directory of the tree. Other file systems mounted in it are omitted.
	// Prefix, "" or "a/b", is put before its names in the archive.
	Root, Prefix string

	// Since is the time after which files count as changed. It is compared with the change
	// time, which the kernel sets and no user can.
	Since time.Time

	// Below, if not zero, means that the tree is an overlay whose upper layer was empty until
	// then. A file that is written to is copied there with the directories above it, which get
	// a new change time. So a directory older than Below has no changes below it and is
	// skipped.
	Below time.Time

	// Unprivileged means that only the user of this process has changed the tree: files of other
	// users that it may not read are unchanged, and omitted.
	Unprivileged bool

	// Skip omits a path below Root if it returns true. It may be nil.
	Skip func(path string) bool

	owners Owners
	links  map[inode]string // first names of files with several names
	dev    uint64
}

type inode struct{ dev, ino uint64 }

// Diff writes the archive: entries for new or changed files and, after each changed directory,
// the names of all its children. Make turns it into a layer. Files that vanish during the walk are
// omitted; the content of files that change during it is undefined.
func (d *Differ) Diff(w *tar.Writer) error {
	var err error
	if d.owners, err = OwnersOf(d.Root); err != nil {
		return err
	}
	st, err := d.owners.Lstat(d.Root)
	if err != nil {
		return err
	}
	d.dev, d.links = st.Dev, map[inode]string{}
	return d.dir(w, d.Root, d.Prefix, &st)
}

// dir writes a directory, if it has changed, and the changes below it.
func (d *Differ) dir(w *tar.Writer, path, name string, st *unix.Stat_t) error {
	if changedAt(st).Before(d.Below) {
		return nil
	}
	entries, err := os.ReadDir(path)
	if gone(err) || d.foreign(err, st) {
		return nil
	}
	if err != nil {
		return err
	}
	if d.changed(st) {
		if err := d.list(w, path, name, st, entries); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := d.child(w, filepath.Join(path, e.Name()), join(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// list writes a directory and the names of its children.
func (d *Differ) list(w *tar.Writer, path, name string, st *unix.Stat_t, entries []fs.DirEntry) error {
	if name == "" {
		name = "."
	}
	if err := w.WriteHeader(d.header(path, name+"/", tar.TypeDir, st)); err != nil {
		return err
	}
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Typeflag: typeListed, Name: join(name, e.Name())}); err != nil {
			return err
		}
	}
	return nil
}

// child writes a file, if it has changed, and the changes below it.
func (d *Differ) child(w *tar.Writer, path, name string) error {
	if d.Skip != nil && d.Skip(path) {
		return nil
	}
	st, err := d.owners.Lstat(path)
	if gone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if st.Dev != d.dev {
			return nil // a mount
		}
		return d.dir(w, path, name, &st)
	}
	if !d.changed(&st) {
		return nil
	}
	if st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if first := d.links[id]; first != "" {
			// Some engines apply the link's mode and owner to the file.
			return w.WriteHeader(&tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeLink, Name: name, Linkname: first,
				Mode: int64(st.Mode & permissions),
				Uid:  int(st.Uid), Gid: int(st.Gid), ModTime: modified(&st)})
		}
		d.links[id] = name
	}
	err = d.file(w, path, name, &st)
	if gone(err) || d.foreign(err, &st) {
		return nil
	}
	return err
}

// foreign reports whether err means that an unprivileged process may not read another user's file.
func (d *Differ) foreign(err error, st *unix.Stat_t) bool {
	return d.Unprivileged && errors.Is(err, fs.ErrPermission) && int(st.Uid) != os.Getuid()
}

// file writes a file other than a directory.
func (d *Differ) file(w *tar.Writer, path, name string, st *unix.Stat_t) error {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return d.regular(w, path, name)
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		if err != nil {
			return err
		}
		h := d.header(path, name, tar.TypeSymlink, st)
		h.Linkname = target
		return w.WriteHeader(h)
	case unix.S_IFIFO:
		return w.WriteHeader(d.header(path, name, tar.TypeFifo, st))
	case unix.S_IFCHR, unix.S_IFBLK:
		kind := byte(tar.TypeChar)
		if st.Mode&unix.S_IFMT == unix.S_IFBLK {
			kind = tar.TypeBlock
		}
		h := d.header(path, name, kind, st)
		h.Devmajor, h.Devminor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
		return w.WriteHeader(h)
	}
	return nil // a socket is useless without its process
}

// regular writes a regular file with the size that it had when it was opened.
func (d *Differ) regular(w *tar.Writer, path, name string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fs.ErrNotExist // it was replaced
	}
	if err := d.owners.Correct(path, &st); err != nil {
		return err
	}
	h := d.header(path, name, tar.TypeReg, &st)
	h.Size = st.Size
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	n, err := copyContent(w, io.LimitReader(f, st.Size))
	if err == nil && n < st.Size {
		_, err = copyContent(w, io.LimitReader(zeros{}, st.Size-n)) // it was truncated
	}
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// changed reports whether a file was created or changed after Since.
func (d *Differ) changed(st *unix.Stat_t) bool {
	return !changedAt(st).Before(d.Since)
}

func changedAt(st *unix.Stat_t) time.Time { return time.Unix(st.Ctim.Unix()) }

func (d *Differ) header(path, name string, kind byte, st *unix.Stat_t) *tar.Header {
	h := &tar.Header{Format: tar.FormatPAX, Typeflag: kind, Name: name, Mode: int64(st.Mode & permissions),
		Uid: int(st.Uid), Gid: int(st.Gid), ModTime: modified(st)}
	if kind != tar.TypeSymlink {
		h.PAXRecords = readAttributes(path)
	}
	return h
}

func modified(st *unix.Stat_t) time.Time { return time.Unix(st.Mtim.Unix()) }

// readAttributes returns a file's extended attributes as tar records.
func readAttributes(path string) map[string]string {
	var names [4 << 10]byte
	n, err := unix.Llistxattr(path, names[:])
	if err != nil || n <= 0 {
		return nil
	}
	records := map[string]string{}
	for name := range bytes.SplitSeq(names[:n], []byte{0}) {
		if !portable(string(name)) {
			continue
		}
		value := make([]byte, maxXattrs)
		if n, err := unix.Lgetxattr(path, string(name), value); err == nil && n > 0 {
			records[attribute+string(name)] = string(value[:n])
		}
	}
	return records
}

// gone reports whether an error means that a file was removed during the walk.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

func join(dir, name string) string {
	if dir == "" || dir == "." {
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}
