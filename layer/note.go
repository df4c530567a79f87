package layer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// note is the extended attribute with the intended owner and mode of a file, "uid gid mode". It
// is used where a user other than root unpacks a tree and cannot set them.
const note = "user.berth.stat"

// Note records the owner and permissions of a file for a user who owns it and is not root. On
// the disk its owner can read and write the file, and it is never setuid. Only directories and
// regular files can have a note.
func Note(f *os.File, uid, gid int, mode uint32) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	actual := mode&0o777 | 0o600
	if info.IsDir() {
		actual |= 0o100
	}
	if err := unix.Fchmod(int(f.Fd()), 0o700); err != nil {
		return &os.PathError{Op: "chmod", Path: f.Name(), Err: err}
	}
	err = unix.Fsetxattr(int(f.Fd()), note, fmt.Appendf(nil, "%d %d %o", uid, gid, mode&permissions), 0)
	if errors.Is(err, unix.ENOTSUP) {
		err = errors.New("the file system does not support user extended attributes, which store the owners")
	}
	if err == nil {
		err = unix.Fchmod(int(f.Fd()), actual)
	}
	if err != nil {
		return &os.PathError{Op: "note the owner of", Path: f.Name(), Err: err}
	}
	return nil
}

// Owners are the intended owners and modes of the files of one tree.
type Owners struct{ noted bool }

// OwnersOf returns the owners of the tree at root: those in notes if its root has one, else the
// file system's.
func OwnersOf(root string) (Owners, error) {
	_, noted, err := readNote(func(buf []byte) (int, error) { return unix.Lgetxattr(root, note, buf) })
	if err != nil {
		return Owners{}, &os.PathError{Op: "read the owner of", Path: root, Err: err}
	}
	return Owners{noted}, nil
}

// Noted reports whether a user other than root unpacked the tree.
func (o Owners) Noted() bool { return o.noted }

// Correct changes the stat result of a path of the tree to the intended owner and mode. In a
// tree with notes, a file without one belongs to root.
func (o Owners) Correct(path string, st *unix.Stat_t) error {
	err := o.correct(st, func(buf []byte) (int, error) { return unix.Lgetxattr(path, note, buf) })
	if err != nil {
		return &os.PathError{Op: "read the owner of", Path: path, Err: err}
	}
	return nil
}

// correct is Correct for a file whose note get reads.
func (o Owners) correct(st *unix.Stat_t, get func([]byte) (int, error)) error {
	if !o.noted {
		return nil
	}
	st.Uid, st.Gid = 0, 0
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG && kind != unix.S_IFDIR {
		return nil
	}
	is, noted, err := readNote(get)
	if err == nil && noted {
		st.Uid, st.Gid, st.Mode = is.Uid, is.Gid, st.Mode&unix.S_IFMT|is.Mode
	}
	return err
}

// Lstat returns the stat result of a path of the tree, corrected.
func (o Owners) Lstat(path string) (st unix.Stat_t, err error) {
	if err := unix.Lstat(path, &st); err != nil {
		return st, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	return st, o.Correct(path, &st)
}

// Fstat returns the stat result of an open file of the tree, corrected.
func (o Owners) Fstat(f *os.File) (st unix.Stat_t, err error) {
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return st, &os.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	return st, o.correct(&st, func(buf []byte) (int, error) { return unix.Fgetxattr(int(f.Fd()), note, buf) })
}

// readNote reads the note that get returns, if there is one.
func readNote(get func([]byte) (int, error)) (st unix.Stat_t, noted bool, err error) {
	var buf [64]byte
	n, err := get(buf[:])
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, fs.ErrNotExist) {
		return st, false, nil
	}
	if err == nil {
		_, err = fmt.Sscanf(string(buf[:n]), "%d %d %o", &st.Uid, &st.Gid, &st.Mode)
	}
	if err == nil && st.Mode&^permissions != 0 {
		err = ErrInvalid
	}
	return st, err == nil, err
}
