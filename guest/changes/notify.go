package changes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/guest/plainfile"
)

// Bounds on the events between two scans. A folder with more events is no longer watched
// and is read at the next scan.
const (
	maxEvents  = 1_000  // of one folder
	maxTouched = 20_000 // names, of all
	maxReads   = 256    // of the queue, at a time
	readDelay  = 20 * time.Millisecond

	// A write to a file with several names changes all of them, but is reported for one.
	// If such files exist, trees of up to this many bytes are scanned whole.
	maxLinked = 256 << 10
)

// watchMask selects changes of a directory and of the files in it. Writes to mapped
// memory are reported when it is unmapped; writes through a name outside of the tree are
// not reported.
const watchMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE | unix.IN_EXCL_UNLINK | unix.IN_ONLYDIR

// A notifier receives the kernel's events of changes in the folders of a tree.
type notifier struct {
	events  *eventQueue // nil without notifications
	watched map[int32]*folder
	touches int // names touched since the last scan
}

// sync reads the pending events, and checks whether the kernel reports all changes: it
// does not report those in file systems that are mounted below the root.
func (t *Tree) sync() {
	if !t.notify {
		return
	}
	var below []string
	for point := range MountPoints() {
		if strings.HasPrefix(point, t.root+"/") {
			below = append(below, strings.TrimPrefix(point, t.root+"/"))
		}
	}
	slices.Sort(below)
	if mounts := strings.Join(below, "\n"); mounts != t.mounts {
		t.mounts = mounts
		t.restart()
	}
	if t.events == nil {
		t.open()
	}
	t.readEvents()
	var st unix.Stat_t
	if unix.Lstat(t.root, &st) != nil || st.Ino != t.top.inode {
		t.markStale(t.top)
	}
}

// restart watches all folders again and marks everything as stale.
func (t *Tree) restart() {
	t.close()
	t.top.each(func(f *folder) {
		f.watch = 0
		t.markStale(f)
	})
	t.open()
}

func (t *Tree) open() {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return // scans walk the directory
	}
	bell, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = errors.Join(unix.SetNonblock(bell, true), arm(bell, unix.EPOLL_CTL_ADD, fd))
	}
	if err != nil {
		unix.Close(fd)
		unix.Close(bell)
		return
	}
	t.events, t.watched = &eventQueue{fd, os.NewFile(uintptr(bell), "inotify")}, map[int32]*folder{}
	go t.receiveSoon(t.events)
}

// An eventQueue is a queue of events with a bell that rings once for a batch of them.
// Without it, each event would wake the runtime, which takes longer than the change.
type eventQueue struct {
	inotify int // used by the holder of the tree's turn
	bell    *os.File
}

func arm(bell, op, fd int) error {
	return os.NewSyscallError("epollctl", unix.EpollCtl(bell, op, fd, &unix.EpollEvent{Events: unix.EPOLLIN |
		unix.EPOLLONESHOT, Fd: int32(fd)}))
}

func (t *Tree) close() {
	if t.events != nil {
		t.events.bell.Close()
		unix.Close(t.events.inotify)
		t.events, t.watched = nil, nil
	}
}

// receiveSoon reads events soon after they come, because gVisor queues them without a bound.
func (t *Tree) receiveSoon(e *eventQueue) {
	conn, err := e.bell.SyscallConn()
	for err == nil { // until the queue is closed
		err = conn.Read(func(bell uintptr) bool {
			n, err := unix.EpollWait(int(bell), make([]unix.EpollEvent, 1), 0)
			return n > 0 || err != nil
		})
		if err == nil {
			time.Sleep(readDelay)
			err = t.receiveAndArm(conn, e)
		}
	}
}

// receiveAndArm reads the events that the bell rang for, and arms the bell again.
func (t *Tree) receiveAndArm(conn syscall.RawConn, e *eventQueue) (err error) {
	t.turn <- struct{}{}
	defer t.release()
	if t.events == e {
		t.readEvents()
	}
	if t.events != e {
		return os.ErrClosed
	}
	return errors.Join(conn.Control(func(bell uintptr) { err = arm(int(bell), unix.EPOLL_CTL_MOD, e.inotify) }), err)
}

// receive processes the pending events.
func (t *Tree) readEvents() {
	if t.events == nil {
		return
	}
	buf := make([]byte, 32<<10)
	for reads := 0; ; reads++ {
		n, err := unix.Read(t.events.inotify, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		for ev := buf[:n]; len(ev) >= unix.SizeofInotifyEvent; {
			watch, mask := int32(binary.NativeEndian.Uint32(ev)), binary.NativeEndian.Uint32(ev[4:])
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(ev[12:]))
			if mask&unix.IN_Q_OVERFLOW != 0 || reads > maxReads {
				t.restart()
				return
			}
			name, _, _ := bytes.Cut(ev[unix.SizeofInotifyEvent:size], []byte{0})
			t.event(t.watched[watch], mask, string(name))
			ev = ev[size:]
		}
	}
}

// event processes an event of a folder, which is nil if it is no longer watched.
func (t *Tree) event(f *folder, mask uint32, name string) {
	switch {
	case f == nil:
	case mask&unix.IN_IGNORED != 0: // it was removed
		delete(t.watched, f.watch)
		f.watch = 0
		t.markStale(f)
	case name == "" || f.whole:
	case f.events >= maxEvents || t.touches >= maxTouched:
		t.unwatch(f)
		t.markStale(f)
	default:
		f.events++
		if !f.touched[name] {
			t.touches++
			f.touched = set(f.touched, name, true)
		}
		t.queue(f)
	}
}

// watch requests events for an open folder.
func (t *Tree) watch(f *folder, fd int) {
	path := f.path("")
	foreign := slices.ContainsFunc(strings.Split(t.mounts, "\n"), func(point string) bool {
		return point != "" && strings.HasPrefix(path, point+"/")
	})
	if t.events != nil && !foreign {
		// Its path may lead to another directory by now.
		if wd, err := unix.InotifyAddWatch(t.events.inotify, fmt.Sprintf("/proc/self/fd/%d", fd),
			watchMask); err == nil {
			// A directory has one watch. If another folder has it, the directory was moved,
			// or one of the two paths leads through a link that has replaced a folder.
			if g := t.watched[int32(wd)]; g != nil && g != f {
				if above := t.replaced(f); above != nil {
					t.markStale(above.parent)
					t.drop(above)
					return
				}
				g.watch = 0
				t.markStale(g)
			}
			f.watch = int32(wd)
			t.watched[f.watch] = f
		}
	}
	if f.watch == 0 {
		t.unwatched[f] = true
	} else {
		delete(t.unwatched, f)
	}
}

// replaced returns the first folder above f whose path is no longer a directory, or nil.
func (t *Tree) replaced(f *folder) (first *folder) {
	for above := f.parent; above != nil && above.parent != nil; above = above.parent {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(t.root, above.path("")), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			first = above
		}
	}
	return first
}

// unwatch ends the events of a folder. A folder that was moved gets its watch from its new
// place.
func (t *Tree) unwatch(f *folder) {
	if f.watch == 0 {
		return
	}
	if t.watched[f.watch] == f {
		delete(t.watched, f.watch)
		_, _ = unix.InotifyRmWatch(t.events.inotify, uint32(f.watch))
	}
	f.watch = 0
}

// maxMountInfo bounds the list of mounts that is read, in bytes.
const maxMountInfo = 1 << 20

// MountPoints returns the paths in the sandbox at which something is mounted, without
// its root.
func MountPoints() map[string]bool {
	points := map[string]bool{}
	text, _ := plainfile.Read("/proc/self/mountinfo", 0, maxMountInfo)
	for line := range strings.Lines(string(text)) {
		// Blanks and line ends in a path are written in octal; only spaces occur here.
		if f := strings.Fields(line); len(f) > 4 && f[4] != "/" {
			points[strings.ReplaceAll(f[4], `\040`, " ")] = true
		}
	}
	return points
}
