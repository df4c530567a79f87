package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/beneath"
)

// Bounds on requests for the content of a volume.
const (
	MaxDepth   = 100    // directories that one request lists below each other, or creates
	MaxEntries = 10_000 // files in a list
	maxPath    = 4096   // bytes
)

// A visit is a running call of Visit.
type visit struct{ end context.CancelFunc }

// Visit mounts a volume and calls f with its content, which f must not use after it returns. The
// volume stays mounted while f runs. The context that f is given ends when the volume is to be deleted.
func (l *Service) Visit(ctx context.Context, p berth.ProjectID, id berth.VolumeID, f func(context.Context,
	*Content) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	v := &visit{cancel}
	dir, err := l.enter(ctx, p, id, v)
	if err != nil {
		return err
	}
	defer l.leave(id, v)
	root, err := beneath.Open(dir)
	if err != nil {
		return fmt.Errorf("open content of volume: %w", err)
	}
	defer root.Close()
	return f(ctx, &Content{root: root, space: l.opts.Space})
}

// enter mounts a volume for a visit and returns the directory with its content.
func (l *Service) enter(ctx context.Context, p berth.ProjectID, id berth.VolumeID, v *visit) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.get(ctx, p, id)
	if err != nil {
		return "", err
	}
	dir, err := l.open(p, r)
	if err != nil {
		return "", err
	}
	if l.visits[id] == nil {
		l.visits[id] = map[*visit]bool{}
	}
	l.visits[id][v] = true
	return dir, nil
}

// leave unregisters a visit.
func (l *Service) leave(id berth.VolumeID, v *visit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.visits[id], v); len(l.visits[id]) == 0 {
		delete(l.visits, id)
	}
	l.used[id] = l.opts.Clock.Now()
}

// endVisits ends the contexts of a volume's visits and reports whether there are any. l.mu is held.
func (l *Service) endVisits(id berth.VolumeID) bool {
	for v := range l.visits[id] {
		v.end()
	}
	return len(l.visits[id]) > 0
}

// Content is the content of a volume. Sandboxes change it at any time, and their commands are
// hostile: no method follows a link out of the volume, opens anything but regular files and
// directories, or waits for a sandbox. Paths are relative to the volume, with or without a leading
// slash; links in them lead only to files of the volume, by relative targets. Errors are for the
// client. Content is safe for concurrent use.
type Content struct {
	root  *beneath.Root
	space func() error
}

// An Entry describes a file of a volume.
type Entry struct {
	Path                        string // absolute in the volume
	Mode                        fs.FileMode
	Size                        int64 // bytes
	UID, GID                    uint32
	Accessed, Modified, Changed time.Time
	Target                      string // of a link
}

// errNotRegular is returned for a file that is neither a regular file nor a directory nor a link.
var errNotRegular = errors.New("not a regular file")

// local returns a path relative to the volume, "." for its root.
func local(name string) (string, error) {
	trimmed := strings.TrimLeft(name, "/")
	switch {
	case len(name) > maxPath || strings.ContainsRune(name, 0):
		return "", berth.Invalid("path", "Invalid 'path': expected at most %d bytes without NUL.", maxPath)
	case trimmed == "":
		return ".", nil
	case !filepath.IsLocal(trimmed):
		return "", berth.Invalid("path", "Invalid 'path': %q leads out of the volume.", name)
	}
	return path.Clean(trimmed), nil
}

// fault returns the client's error for a failed operation on a path.
func fault(op, name string, err error) error {
	if _, ok := errors.AsType[*berth.Error](err); ok || err == nil {
		return err
	}
	at := path.Join("/", name)
	invalid := func(why string) error { return berth.Invalid("path", "Invalid 'path': %q %s.", at, why) }
	switch {
	case errors.Is(err, beneath.ErrEscape):
		return invalid("leads out of the volume")
	case errors.Is(err, unix.ENOENT):
		return berth.Errorf(berth.CodeNotFound, "Path %q not found.", at)
	case errors.Is(err, unix.EEXIST):
		return berth.Errorf(berth.CodeConflict,
			"Path %q exists already. Set 'force' to replace a file, or to accept a directory.", at)
	case errors.Is(err, unix.ENOTDIR):
		return invalid("is not a directory, or leads through a file")
	case errors.Is(err, unix.EISDIR):
		return invalid("is a directory")
	case errors.Is(err, unix.ELOOP):
		return invalid("has too many links")
	case errors.Is(err, unix.ENAMETOOLONG):
		return invalid("is too long")
	case errors.Is(err, errNotRegular):
		return invalid("is not a regular file")
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOTEMPTY):
		return berth.Errorf(berth.CodeConflict, "Path %q is being changed by a sandbox. Send the request again.", at)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return &berth.Error{Code: berth.CodeInsufficientStorage, Message: "The volume is full. Remove files from it."}
	case errors.Is(err, context.Canceled):
		return &berth.Error{Code: berth.CodeConflict,
			Message: "The request was cancelled, or the volume is being deleted.", Err: err}
	}
	return fmt.Errorf("%s in volume: %w", op, err)
}

// Stat describes the file at a path. It does not follow a link in the last part.
func (c *Content) Stat(name string) (*Entry, error) {
	at, err := local(name)
	if err != nil {
		return nil, err
	}
	e, err := entry(c.root, at, at)
	if errors.Is(err, unix.ENOTDIR) {
		err = unix.ENOENT
	}
	return e, fault("stat", at, err)
}

// entry describes the file at a path below a Root. shown is its path in the volume.
func entry(root *beneath.Root, at, shown string) (*Entry, error) {
	info, err := root.Lstat(at)
	if err != nil {
		return nil, err
	}
	e := &Entry{Path: path.Join("/", shown), Mode: info.Mode(), Size: info.Size(), Modified: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		e.UID, e.GID, e.Accessed, e.Changed = st.Uid, st.Gid, time.Unix(st.Atim.Unix()), time.Unix(st.Ctim.Unix())
	}
	if info.Mode().Type() == fs.ModeSymlink {
		if e.Target, err = root.Readlink(at); errors.Is(err, unix.EINVAL) {
			err = unix.ENOENT // another file replaced the link
		}
	}
	return e, err
}

// List describes the files of a directory and of those below it, down to a depth from 1 to MaxDepth. Each
// directory comes before its files, and names are in order. A directory's files may change during the walk;
// those that vanish are left out. More than MaxEntries files are an error.
func (c *Content) List(ctx context.Context, name string, depth int) ([]*Entry, error) {
	at, err := local(name)
	if err != nil {
		return nil, err
	}
	dir, err := c.root.OpenRoot(at)
	if err != nil {
		return nil, fault("list", at, err)
	}
	defer dir.Close()
	l := lister{dir: dir, at: at}
	if err := l.list(ctx, ".", min(depth, MaxDepth)); err != nil {
		return nil, fault("list", at, err)
	}
	return l.entries, nil
}

// A lister collects the files below a directory.
type lister struct {
	dir     *beneath.Root
	at      string // the path of dir
	entries []*Entry
}

func (l *lister) list(ctx context.Context, folder string, depth int) error {
	names, err := l.names(ctx, folder)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		below := path.Join(folder, name)
		e, err := entry(l.dir, below, path.Join(l.at, below))
		if beneath.Gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		l.entries = append(l.entries, e)
		if !e.Mode.IsDir() || depth == 1 {
			continue
		}
		if err := l.list(ctx, below, depth-1); err != nil && !beneath.Gone(err) {
			return err
		}
	}
	return nil
}

// names returns the names in a directory.
func (l *lister) names(ctx context.Context, folder string) ([]string, error) {
	f, err := l.dir.OpenFolder(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []string
	for {
		some, err := f.Readdirnames(namesAtOnce)
		all = append(all, some...)
		switch {
		case len(l.entries)+len(all) > MaxEntries:
			return nil, berth.Invalid("path",
				"The list has more than %d files. List a directory below it, or with a smaller 'depth'.", MaxEntries)
		case len(some) == 0:
			return all, nil // errors are io.EOF or those of a removed directory
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}

// Open opens a regular file for reading. It follows links.
func (c *Content) Open(name string) (*os.File, error) {
	at, err := local(name)
	if err != nil {
		return nil, err
	}
	var f *os.File
	err = c.root.InTarget(at, func(dir int, base string) error {
		return hold(dir, base, func(held string, st *unix.Stat_t) (err error) {
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFREG:
			case unix.S_IFDIR:
				return unix.EISDIR
			default:
				return errNotRegular
			}
			// nonblocking: a sandbox may have a lease on the file
			f, err = os.OpenFile(held, os.O_RDONLY|unix.O_NONBLOCK, 0)
			return err
		})
	})
	return f, fault("open", at, err)
}

// hold opens a file without any effect on it, and calls f with a path of the open file, which no other
// file replaces, and its attributes. The error for a link is ELOOP.
func hold(dir int, base string, f func(held string, st *unix.Stat_t) error) error {
	fd, err := unix.Openat(dir, base, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.ELOOP
	}
	return f(fmt.Sprintf("/proc/self/fd/%d", fd), &st)
}
