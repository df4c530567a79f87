package changes

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/beneath"
	"github.com/berth-run/berth/internal/clock"
)

// Bounds on the work of a scan of the working directory, before and after a call: if a scan exceeds them, the changes
// of the call are not reported. They are in entries and bytes, so that the same files give the same answer on a
// busy machine.
type scanLimits struct {
	before int // entries read by the scan before a call, which delays its commands
	after  int // entries read by the scan after a call
	held   int // bytes
}

var usualLimits = scanLimits{before: 10_000, after: 200_000, held: 16 << 20}

// The guards end a scan of a file system that does not answer.
const (
	beforeGuard = 2 * time.Second
	afterGuard  = 10 * time.Second
)

// The approximate size of a file or folder in memory, without its name. A directory with
// too many is not scanned again for restTime.
const (
	fileCost   = 128
	folderCost = 640
	placeCost  = 128
	restTime   = time.Minute
)

// A fileMark distinguishes versions of a regular file. It is zero if there is no file.
type fileMark struct {
	inode    uint64
	size     int64
	modified int64 // which the owner can set, in nanoseconds
	changed  int64 // set by the kernel
}

// A Tree caches the regular files below the working directory, and notes which names may be
// out of date. A scan updates those if the kernel reports changes (notify.go), and
// otherwise everything. Links are not followed.
type Tree struct {
	root   string
	notify bool // use the kernel's notifications
	limits scanLimits
	clock  clock.Clock
	turn   chan struct{} // guards all fields below
	wanted atomic.Int32  // goroutines that wait for turn

	top       *folder
	stale     []*folder        // to be scanned
	unwatched map[*folder]bool // without notifications
	gone      []*folder        // removed ones that scenes still need
	scenes    map[*Scene]bool
	entries   int    // read by all scans
	held      int    // bytes, by the estimated costs
	mounts    string // below root, at the last scan
	rest      time.Time
	linked    bool // some files have several names
	notifier
}

// A folder is a directory. It stays the same for a path while a call runs.
type folder struct {
	parent  *folder
	name    string
	inode   uint64
	watch   int32 // 0: not watched
	files   map[string]fileMark
	folders map[string]*folder

	queued  bool            // it is in stale
	whole   bool            // all names are to be scanned
	touched map[string]bool // else the names to be scanned
	events  int             // number of events that touched them
	gone    bool
}

// New returns a Tree of the directory root. With notify it uses inotify.
func New(root string, notify bool) *Tree {
	t := &Tree{root: filepath.Clean(root), notify: notify, limits: usualLimits, clock: clock.System,
		turn: make(chan struct{}, 1), scenes: map[*Scene]bool{}}
	t.reset()
	return t
}

// reset drops everything cached.
func (t *Tree) reset() {
	t.close()
	for s := range t.scenes {
		s.lost = true
	}
	clear(t.scenes)
	t.top, t.stale, t.gone, t.held, t.touches = &folder{}, nil, nil, 0, 0
	t.unwatched, t.linked = map[*folder]bool{}, false
	t.markStale(t.top)
}

func (t *Tree) acquire(timeout <-chan time.Time) bool {
	t.wanted.Add(1)
	defer t.wanted.Add(-1)
	select {
	case t.turn <- struct{}{}:
		return true
	case <-timeout:
		return false
	}
}

func (t *Tree) release() { <-t.turn }

// path returns the path of a name, relative to the root.
func (f *folder) path(name string) string {
	var names []string
	for ; f.parent != nil; f = f.parent {
		names = append(names, f.name)
	}
	var b strings.Builder
	for i := len(names) - 1; i >= 0; i-- {
		b.WriteString(names[i] + "/")
	}
	return b.String() + name
}

// each calls do for the folder and the existing ones below it.
func (f *folder) each(do func(*folder)) {
	if f.gone {
		return
	}
	do(f)
	for _, sub := range f.folders {
		sub.each(do)
	}
}

// queue marks a folder to be scanned.
func (t *Tree) queue(f *folder) {
	if !f.queued {
		f.queued = true
		t.stale = append(t.stale, f)
	}
}

// markStale marks all of a folder to be scanned.
func (t *Tree) markStale(f *folder) {
	f.whole, f.touched = true, nil
	t.queue(f)
}

// budget returns a function that reports whether a scan that begins now has read more than most entries, or late has
// ended it.
func (t *Tree) budget(most int, late <-chan time.Time) func() bool {
	begin, isLate := t.entries, false
	return func() bool {
		select {
		case <-late:
			isLate = true
		default:
		}
		return isLate || t.entries-begin >= most
	}
}

// scanOn continues a scan in the background, until another caller waits for the tree.
func (t *Tree) scanOn() {
	t.turn <- struct{}{}
	defer t.release()
	t.scan(func() bool { return t.wanted.Load() > 0 })
}

// scan updates the tree, and reports whether it is up to date. It ends early if stop
// returns true, and the next scan continues there, or if the tree is too large.
func (t *Tree) scan(stop func() bool) bool {
	if t.clock.Now().Before(t.rest) {
		return false
	}
	t.sync()
	for f := range t.unwatched {
		t.markStale(f)
	}
	for all := false; ; {
		if len(t.stale) == 0 {
			if all || !t.notify || !t.linked || t.held > maxLinked {
				t.touches = 0
				return true
			}
			all = true
			t.top.each(t.markStale)
		}
		f := t.stale[len(t.stale)-1]
		t.stale = t.stale[:len(t.stale)-1]
		f.queued = false
		if !f.gone && !t.refresh(f, stop) {
			t.markStale(f)
			return false
		}
		if t.held > t.limits.held {
			t.reset()
			t.rest = t.clock.Now().Add(restTime)
			return false
		}
	}
}

// refresh scans a folder, and reports whether it completed. Folders that it
// finds are stale.
func (t *Tree) refresh(f *folder, stop func() bool) bool {
	if stop() {
		return false
	}
	t.entries++
	dir, err := t.openFolder(f)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		t.drop(f)
		return true
	case err != nil:
		t.unwatched[f] = true // it cannot be read now; the next scan tries again
		return true
	}
	defer dir.Close()
	fd := int(dir.Fd())
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return true
	}
	if f.inode != st.Ino { // another directory has taken its place
		t.drop(f)
		f.gone, f.inode, f.whole = false, st.Ino, true
	}
	if f.watch == 0 {
		f.whole = true
		if t.watch(f, fd); f.gone {
			return true
		}
	}
	touched := f.touched
	f.touched, f.events = nil, 0
	if f.whole {
		return t.readAll(f, dir, stop)
	}
	for name := range touched {
		t.update(f, fd, name)
	}
	return true
}

// openFolder opens a folder without following links.
func (t *Tree) openFolder(f *folder) (*os.File, error) {
	root, err := beneath.Open(t.root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenFolder(f.path(""))
}

// readAll scans all names in a folder.
func (t *Tree) readAll(f *folder, dir *os.File, stop func() bool) bool {
	missing := make(map[string]bool, len(f.files)+len(f.folders))
	for name := range f.files {
		missing[name] = true
	}
	for name := range f.folders {
		missing[name] = true
	}
	for {
		names, err := dir.Readdirnames(256)
		for _, name := range names {
			delete(missing, name)
			t.update(f, int(dir.Fd()), name)
		}
		if err == io.EOF {
			break
		}
		if err != nil || t.held > t.limits.held || stop() {
			return err != nil || t.held > t.limits.held // the caller handles this
		}
	}
	for name := range missing {
		t.update(f, int(dir.Fd()), name)
	}
	f.whole = false
	return true
}

// update scans a name in a folder, which is open.
func (t *Tree) update(f *folder, fd int, name string) {
	t.entries++
	var st unix.Stat_t
	if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		st = unix.Stat_t{}
	}
	kind := st.Mode & unix.S_IFMT
	sub := f.folders[name]
	if sub != nil && (kind != unix.S_IFDIR || sub.inode != st.Ino) {
		t.drop(sub)
	}
	var is fileMark
	switch kind {
	case unix.S_IFREG:
		t.linked = t.linked || st.Nlink > 1
		is = fileMark{st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}
	case unix.S_IFDIR:
		if sub == nil {
			sub = &folder{parent: f, name: name, gone: true}
			f.folders = set(f.folders, name, sub)
			t.held += folderCost + len(name)
		}
		if sub.gone {
			sub.gone, sub.inode = false, st.Ino
			t.markStale(sub)
		}
	}
	was, had := f.files[name]
	if is == was {
		return
	}
	t.note(f, name, was)
	switch {
	case kind != unix.S_IFREG:
		t.remove(f, name)
	case !had:
		t.held += fileCost + len(name)
		fallthrough
	default:
		f.files = set(f.files, name, is)
	}
}

func set[V any](m map[string]V, name string, v V) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	m[name] = v
	return m
}

func (t *Tree) remove(f *folder, name string) {
	delete(f.files, name)
	t.held -= fileCost + len(name)
}

// drop records that a folder was removed with everything in it.
func (t *Tree) drop(f *folder) {
	for name, was := range f.files {
		t.note(f, name, was)
		t.remove(f, name)
	}
	for _, sub := range f.folders {
		t.drop(sub)
	}
	t.unwatch(f)
	f.touched, f.events, f.inode, f.files = nil, 0, 0, nil
	if !f.gone && f.parent != nil {
		f.gone = true
		delete(t.unwatched, f)
		t.gone = append(t.gone, f)
	}
}

// prune drops removed folders that no running call needs.
func (t *Tree) prune() {
	if len(t.scenes) > 0 {
		return
	}
	for _, f := range t.gone {
		if f.gone && f.parent.folders[f.name] == f {
			delete(f.parent.folders, f.name)
			t.held -= folderCost + len(f.name)
		}
	}
	t.gone = nil
}
