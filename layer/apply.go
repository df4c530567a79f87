package layer

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/beneath"
)

// maxLinks bounds the symbolic links followed to an entry's directory.
const maxLinks = 40

// An Applier applies layers to the tree below Root. No other process may change the tree
// while it works. Nothing outside of Root is read or written, whatever links and names exist.
type Applier struct {
	Root   *beneath.Root
	Prefix string // of the names inside Root, as in Differ; others are dropped
	Limits Limits

	// Unprivileged means that directories of other users stay as they are, but for what the layer
	// puts into them.
	Unprivileged bool

	Owners  bool // set the layer's owners; needs root
	Notes   bool // note owners and permissions, see Note; files that cannot have a note are root's
	Devices bool // create device nodes if permitted; otherwise drop them

	// Fixed are paths, relative to Root and without links, that no layer changes, with all
	// files below them: other file systems are mounted there.
	Fixed map[string]bool

	// Take is called for each entry before it is applied. If it returns true, it has read the
	// content, and the entry is not applied. It may be nil.
	Take func(name string, h *tar.Header, content io.Reader) (taken bool, err error)

	// Grow is called before an entry whose content has that many bytes is applied. It may be nil.
	Grow func(bytes int64) error

	made    map[string]bool      // paths from this layer, which its whiteouts do not remove
	times   map[string]time.Time // of directories, set after all other changes
	entries int
	bytes   int64
	last    struct{ name, at string } // the last result of resolve; "" if it may be outdated
}

// Apply applies one layer. After an error the tree is partly changed.
func (a *Applier) Apply(r io.Reader) error {
	if a.Limits.Entries == 0 {
		a.Limits.Entries = DefaultMaxEntries
	}
	a.made, a.times = map[string]bool{}, map[string]time.Time{}
	if err := a.noteRoot(); err != nil {
		return err
	}
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if a.entries++; a.entries > a.Limits.Entries {
			return fmt.Errorf("%w: more than %d entries", ErrTooLarge, a.Limits.Entries)
		}
		if err := a.entry(h, in); err != nil {
			return fmt.Errorf("%.200q: %w", h.Name, err)
		}
	}
	for name, at := range a.times {
		if info, err := a.Root.Lstat(name); err != nil || !info.IsDir() {
			continue // it was removed or replaced
		}
		if err := a.setTime(name, at); err != nil {
			return err
		}
	}
	return nil
}

func (a *Applier) entry(h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	if a.Take != nil {
		if taken, err := a.Take(name, h, content); taken || err != nil {
			return err
		}
	}
	if name = a.inside(name); name == "" {
		return nil
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return fmt.Errorf("%w: the root is not a directory", ErrInvalid)
		}
		return a.describe(h, name)
	}
	if h.Typeflag != tar.TypeReg {
		a.last.name = ""
	}
	dir, err := a.resolve(path.Dir(name))
	if err != nil {
		return err
	}
	if !a.fixed(dir) {
		if err := a.keepTime(dir); err != nil {
			return err
		}
	}
	if base := path.Base(name); strings.HasPrefix(base, whiteout) {
		if a.fixed(dir) {
			return nil
		}
		return a.remove(dir, base)
	}
	at := join(dir, path.Base(name))
	if a.fixed(at) {
		return nil
	}
	if err := a.clear(at, h.Typeflag == tar.TypeDir); err != nil {
		return err
	}
	if a.Grow != nil {
		if err := a.Grow(contentSize(h)); err != nil {
			return err
		}
	}
	applied, err := a.make(h, at, content)
	if err != nil || !applied {
		return err
	}
	for up := at; up != "." && !a.made[up]; up = path.Dir(up) {
		a.made[up] = true
	}
	if h.Typeflag == tar.TypeLink {
		return nil // the other name has the metadata
	}
	return a.describe(h, at)
}

// inside returns the path below Root of a name, or "" if it is outside.
func (a *Applier) inside(name string) string {
	switch {
	case a.Prefix == "":
		return name
	case name == a.Prefix:
		return "."
	}
	rest, ok := strings.CutPrefix(name, a.Prefix+"/")
	if !ok {
		return ""
	}
	return rest
}

// resolve returns the path of a directory without links, and creates it if it does not exist.
// It follows links as in the tree, with Root as their root.
func (a *Applier) resolve(name string) (string, error) {
	if name == a.last.name {
		return a.last.at, nil
	}
	at, rest, followed := ".", strings.Split(name, "/"), 0
	for len(rest) > 0 {
		elem := rest[0]
		rest = rest[1:]
		switch elem {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := join(at, elem)
		info, err := a.Root.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := a.Root.Mkdir(next, 0o755); err != nil {
				return "", err
			}
		case err != nil:
			return "", err
		case info.Mode().Type() == fs.ModeSymlink:
			if followed++; followed > maxLinks {
				return "", unix.ELOOP
			}
			target, err := a.Root.Readlink(next)
			if err != nil {
				return "", err
			}
			if path.IsAbs(target) {
				at = "."
			}
			rest = append(strings.Split(target, "/"), rest...)
			if len(rest) > maxDepth {
				return "", unix.ENAMETOOLONG
			}
			continue
		case !info.IsDir():
			return "", unix.ENOTDIR
		}
		at = next
	}
	a.last.name, a.last.at = name, at
	return at, nil
}

// remove applies a whiteout.
func (a *Applier) remove(dir, base string) error {
	if base != opaque {
		if strings.HasPrefix(base, whiteout+whiteout) {
			return nil // the file's own name
		}
		at := join(dir, strings.TrimPrefix(base, whiteout))
		if name := path.Base(at); a.made[at] || name == "." || name == ".." || at == dir {
			return nil
		}
		return a.removeAll(at)
	}
	f, err := a.Root.Open(dir)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	for _, name := range names {
		if at := join(dir, name); err == nil && !a.made[at] {
			err = a.removeAll(at)
		}
	}
	return err
}

// removeAll removes a path, except fixed paths and the directories above them.
func (a *Applier) removeAll(at string) error {
	a.last.name = ""
	if a.fixed(at) {
		return nil
	}
	holds := false
	for path := range a.Fixed {
		holds = holds || strings.HasPrefix(path, at+"/")
	}
	if !holds {
		return a.Root.RemoveAll(at)
	}
	f, err := a.Root.Open(at)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	f.Close()
	for _, name := range names {
		if err == nil {
			err = a.removeAll(join(at, name))
		}
	}
	return err
}

// fixed reports whether a path is one of Fixed, or below.
func (a *Applier) fixed(at string) bool {
	if len(a.Fixed) == 0 {
		return false
	}
	for ; at != "." && at != "/"; at = path.Dir(at) {
		if a.Fixed[at] {
			return true
		}
	}
	return false
}

// clear removes the file that an entry replaces. A directory stays if the entry is a directory.
func (a *Applier) clear(at string, dir bool) error {
	info, err := a.Root.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) || err == nil && dir && info.IsDir() {
		return nil
	}
	if err != nil {
		return err
	}
	return a.removeAll(at)
}

// contentSize returns how many bytes an entry writes into its file.
func contentSize(h *tar.Header) int64 {
	switch h.Typeflag {
	case tar.TypeReg, '\x00', tar.TypeCont, tar.TypeGNUSparse:
		return max(h.Size, 0)
	}
	return 0
}

// make creates a file of an entry's type. It returns false for entries that are dropped.
func (a *Applier) make(h *tar.Header, at string, content io.Reader) (bool, error) {
	switch h.Typeflag {
	case tar.TypeDir:
		err := a.Root.Mkdir(at, 0o700)
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
		return true, err
	case tar.TypeReg, '\x00', tar.TypeCont, tar.TypeGNUSparse: // 0: of old archives
		if a.bytes += h.Size; h.Size < 0 || a.bytes < 0 || a.Limits.Bytes > 0 && a.bytes > a.Limits.Bytes {
			return false, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, a.Limits.Bytes)
		}
		return true, a.write(at, content)
	case tar.TypeSymlink:
		return true, a.Root.Symlink(h.Linkname, at)
	case tar.TypeLink:
		return true, a.link(h.Linkname, at)
	case tar.TypeFifo:
		return true, a.node(at, unix.S_IFIFO, 0)
	case tar.TypeChar, tar.TypeBlock:
		if !a.Devices {
			return false, nil
		}
		kind := uint32(unix.S_IFCHR)
		if h.Typeflag == tar.TypeBlock {
			kind = unix.S_IFBLK
		}
		err := a.node(at, kind, unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor)))
		if errors.Is(err, fs.ErrPermission) {
			return false, nil // it could not be used either
		}
		return true, err
	}
	return false, fmt.Errorf("%w: type %q", ErrInvalid, h.Typeflag)
}

func (a *Applier) write(at string, content io.Reader) error {
	f, err := a.Root.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = copyContent(f, content)
	return errors.Join(err, f.Close())
}

// link creates another name for an existing file.
func (a *Applier) link(target, at string) error {
	target, err := clean(target)
	if err != nil {
		return err
	}
	if target = a.inside(target); target == "" {
		return fmt.Errorf("%w: the link target does not exist", ErrInvalid)
	}
	dir, err := a.resolve(path.Dir(target))
	if err != nil {
		return err
	}
	return a.Root.Link(join(dir, path.Base(target)), at)
}

// inDir calls f with the directory that contains a path without links.
func (a *Applier) inDir(at string, f func(dir int, base string) error) error {
	return a.Root.InDir(at, f)
}

func (a *Applier) node(at string, kind uint32, dev uint64) error {
	return a.inDir(at, func(dir int, base string) error { return unix.Mknodat(dir, base, kind|0o600, int(dev)) })
}

// noteRoot marks the tree as one with notes, if Notes is set.
func (a *Applier) noteRoot() error {
	if !a.Notes {
		return nil
	}
	f, err := a.Root.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	if n, _ := unix.Fgetxattr(int(f.Fd()), note, nil); n > 0 {
		return nil
	}
	return Note(f, 0, 0, 0o755)
}

// note replaces own in a tree with notes.
func (a *Applier) note(h *tar.Header, at string) error {
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, '\x00', tar.TypeCont, tar.TypeGNUSparse:
	default:
		return a.own(h, at)
	}
	f, err := a.Root.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	return Note(f, h.Uid, h.Gid, uint32(h.Mode))
}

// describe sets owner, permissions, attributes and time. The order matters: setting one may
// change another.
func (a *Applier) describe(h *tar.Header, at string) error {
	own := a.own
	if a.Notes {
		own = a.note
	}
	if h.Typeflag == tar.TypeDir && a.foreign(at) {
		return nil
	}
	if err := own(h, at); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeDir {
		if err := a.setAttributes(h, at); err != nil {
			return err
		}
	}
	if h.Typeflag == tar.TypeDir {
		a.times[at] = h.ModTime
		return nil
	}
	return a.setTime(at, h.ModTime)
}

// foreign reports whether a file belongs to another user, whose owner, permissions and time an
// unprivileged process cannot set.
func (a *Applier) foreign(at string) bool {
	if !a.Unprivileged {
		return false
	}
	info, err := a.Root.Lstat(at)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) != os.Getuid()
}

// own sets owner and permissions.
func (a *Applier) own(h *tar.Header, at string) error {
	return a.inDir(at, func(dir int, base string) error {
		if a.Owners {
			if err := unix.Fchownat(dir, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return fmt.Errorf("change owner: %w", err)
			}
		}
		if h.Typeflag == tar.TypeSymlink {
			return nil // it has no permissions
		}
		return unix.Fchmodat(dir, base, uint32(h.Mode&permissions), 0)
	})
}

// setAttributes sets extended attributes, if the file system supports them.
func (a *Applier) setAttributes(h *tar.Header, at string) error {
	xattrs, err := attributes(h)
	if err != nil || len(xattrs) == 0 {
		return err
	}
	f, err := a.Root.Open(at)
	if err != nil {
		return err
	}
	defer f.Close()
	for name, value := range xattrs {
		err := unix.Fsetxattr(int(f.Fd()), name, []byte(value), 0)
		if errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("%w: the value of its extended attribute %.100q, %d bytes, is malformed", ErrInvalid,
				name, len(value))
		}
		if err != nil && !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("set the extended attribute %.100q: %w", name, err)
		}
	}
	return nil
}

// keepTime records the current time of a directory, to be restored if the layer has no entry
// for it.
func (a *Applier) keepTime(dir string) error {
	if _, ok := a.times[dir]; ok || a.foreign(dir) {
		return nil
	}
	info, err := a.Root.Lstat(dir)
	if err == nil {
		a.times[dir] = info.ModTime()
	}
	return err
}

func (a *Applier) setTime(at string, to time.Time) error {
	if to.Unix() < 0 {
		to = time.Unix(0, 0)
	}
	ts := []unix.Timespec{unix.NsecToTimespec(to.UnixNano()), unix.NsecToTimespec(to.UnixNano())}
	return a.inDir(at, func(dir int, base string) error {
		return unix.UtimesNanoAt(dir, base, ts, unix.AT_SYMLINK_NOFOLLOW)
	})
}
