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

// A Differ writes what has changed in a tree.
type Differ struct {
	// Root is the directory whose tree it is; other file systems that are mounted
	// in it are left out. Prefix comes before its names in the archive, "" or "a/b".
	Root, Prefix string

	// Since is the time before which what was there was made: changes are known by
	// the time that the kernel gives each file, which no user can set.
	Since time.Time

	// Below, if it is not zero, says that the tree is an overlay to whose upper layer
	// nothing came before then. What is written to is copied there with the directories
	// above it, which the kernel dates as new; one of before Below has nothing new
	// below it and is not looked into.
	Below time.Time

	// Skip leaves a path, below Root, out. It may be nil.
	Skip func(path string) bool

	owners Owners
	links  map[inode]string // names of the files with several
	dev    uint64
}

type inode struct{ dev, ino uint64 }

// Diff writes the archive: entries for what is new or different and, after each
// changed directory, the names of all that it holds. Make makes a layer of it.
// What vanishes meanwhile is left out; what changes meanwhile is anything.
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

// dir writes a directory, if it has changed, and what has changed below it.
func (d *Differ) dir(w *tar.Writer, path, name string, st *unix.Stat_t) error {
	if changedAt(st).Before(d.Below) {
		return nil
	}
	entries, err := os.ReadDir(path)
	if gone(err) {
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

// list writes a directory and the names that it holds.
func (d *Differ) list(w *tar.Writer, path, name string, st *unix.Stat_t, entries []fs.DirEntry) error {
	if name == "" {
		name = "."
	}
	if err := w.WriteHeader(d.header(path, name+"/", tar.TypeDir, st)); err != nil {
		return err
	}
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Typeflag: typeKept, Name: join(name, e.Name())}); err != nil {
			return err
		}
	}
	return nil
}

// child writes what is at a path, if it has changed, and what is below it.
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
			return nil // mounted
		}
		return d.dir(w, path, name, &st)
	}
	if !d.changed(&st) {
		return nil
	}
	if st.Nlink > 1 {
		id := inode{st.Dev, st.Ino}
		if first := d.links[id]; first != "" {
			// Engines give the file the mode and the owners of the link.
			return w.WriteHeader(&tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeLink, Name: name, Linkname: first, Mode: int64(st.Mode & permissions),
				Uid: int(st.Uid), Gid: int(st.Gid), ModTime: modified(&st)})
		}
		d.links[id] = name
	}
	err = d.file(w, path, name, &st)
	if gone(err) {
		return nil
	}
	return err
}

// file writes what is not a directory.
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
	return nil // a socket is nothing without its process
}

// regular writes a file, of which there is as much as it had when it was opened.
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
		return fs.ErrNotExist // something else has taken its place
	}
	if err := d.owners.Correct(path, &st); err != nil {
		return err
	}
	h := d.header(path, name, tar.TypeReg, &st)
	h.Size = st.Size
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyN(w, f, st.Size)
	if errors.Is(err, io.EOF) {
		_, err = io.CopyN(w, zeros{}, st.Size-n) // it has become shorter
	}
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// changed reports whether a file was made or changed since the time.
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

// readAttributes returns a file's extended attributes, as tar's records have them.
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

// gone reports an error of a file that was removed meanwhile.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)
}

func join(dir, name string) string {
	if dir == "" || dir == "." {
		return name
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}
