package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds on what is heard of changes between two looks. A folder of which there is
// more to hear is not listened to any more, but read at the next look.
const (
	maxEvents  = 1_000  // of one folder
	maxTouched = 20_000 // names, of all
	maxReads   = 256    // of the queue, at once
	heedEvery  = 20 * time.Millisecond

	// A file that has several names may be changed by one and look changed by all. As
	// long as no more is remembered than this, everything is looked at then.
	maxLinked = 256 << 10
)

// watchMask is what changes a directory, and what changes files in it. Writes to
// memory that is mapped are told when it is unmapped; those by a name that a file has
// elsewhere are not.
const watchMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO |
	unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE | unix.IN_EXCL_UNLINK | unix.IN_ONLYDIR

// A notifier is told by the kernel of changes in the folders of a tree.
type notifier struct {
	events  *os.File // of inotify; nil is none
	watched map[int32]*folder
	touches int // names that were touched since the last look
}

// trust hears what there is to hear, and sees whether the kernel tells all: not what
// happens in what is mounted below the root, of which others may be the owners.
func (t *tree) trust() {
	if !t.notify {
		return
	}
	var below []string
	for point := range mountPoints() {
		if strings.HasPrefix(point, t.root+"/") {
			below = append(below, strings.TrimPrefix(point, t.root+"/"))
		}
	}
	slices.Sort(below)
	if mounts := strings.Join(below, "\n"); mounts != t.mounts {
		t.mounts = mounts
		t.distrust()
	}
	if t.events == nil {
		t.open()
	}
	t.control(func(fd int) { t.hear(fd) })
	var st unix.Stat_t
	if unix.Lstat(t.root, &st) != nil || st.Ino != t.top.inode {
		t.doubt(t.top)
	}
}

// distrust begins anew to be told, and has everything looked at.
func (t *tree) distrust() {
	t.close()
	t.top.each(func(f *folder) {
		f.watch = 0
		t.doubt(f)
	})
	t.open()
}

func (t *tree) open() {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		return // then it is a walk
	}
	t.events, t.watched = os.NewFile(uintptr(fd), "inotify"), map[int32]*folder{}
	go t.heed(t.events)
}

func (t *tree) close() {
	if t.events != nil {
		go t.events.Close() // it waits for heed
		t.events, t.watched = nil, nil
	}
}

// control calls f with the descriptor of inotify, if there is one.
func (t *tree) control(f func(fd int)) {
	if t.events == nil {
		return
	}
	if conn, err := t.events.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// heed hears events as they come, because gVisor queues them without a bound.
func (t *tree) heed(events *os.File) {
	conn, err := events.SyscallConn()
	for err == nil { // until it is closed
		err = conn.Read(func(fd uintptr) bool {
			t.turn <- struct{}{}
			defer t.give()
			return t.events != events || t.hear(int(fd))
		})
		time.Sleep(heedEvery)
	}
}

// hear takes in the events that are there, and reports whether there were any.
func (t *tree) hear(fd int) bool {
	buf := make([]byte, 32<<10)
	for reads := 0; ; reads++ {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return reads > 0
		}
		for ev := buf[:n]; len(ev) >= unix.SizeofInotifyEvent; {
			watch, mask := int32(binary.NativeEndian.Uint32(ev)), binary.NativeEndian.Uint32(ev[4:])
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(ev[12:]))
			if mask&unix.IN_Q_OVERFLOW != 0 || reads > maxReads {
				t.distrust()
				return true
			}
			name, _, _ := bytes.Cut(ev[unix.SizeofInotifyEvent:size], []byte{0})
			t.event(t.watched[watch], mask, string(name))
			ev = ev[size:]
		}
	}
}

// event takes in an event of a folder, nil if it is watched no more.
func (t *tree) event(f *folder, mask uint32, name string) {
	switch {
	case f == nil:
	case mask&unix.IN_IGNORED != 0: // it was removed
		delete(t.watched, f.watch)
		f.watch = 0
		t.doubt(f)
	case name == "" || f.whole:
	case f.events >= maxEvents || t.touches >= maxTouched:
		t.unwatch(f)
		t.doubt(f)
	default:
		f.events++
		if !f.touched[name] {
			t.touches++
			f.touched = set(f.touched, name, true)
		}
		t.queue(f)
	}
}

// watch has the kernel tell of changes in a folder, which is open.
func (t *tree) watch(f *folder, fd int) {
	path := f.path("")
	foreign := slices.ContainsFunc(strings.Split(t.mounts, "\n"), func(point string) bool {
		return point != "" && strings.HasPrefix(path, point+"/")
	})
	if !foreign {
		t.control(func(events int) {
			// By its path it might be another by now.
			if wd, err := unix.InotifyAddWatch(events, fmt.Sprintf("/proc/self/fd/%d", fd), watchMask); err == nil {
				f.watch = int32(wd)
				t.watched[f.watch] = f
			}
		})
	}
	if f.watch == 0 {
		t.unwatched[f] = true
	} else {
		delete(t.unwatched, f)
	}
}

// unwatch ends that. A folder that was moved has its watch from where it is now.
func (t *tree) unwatch(f *folder) {
	if f.watch == 0 {
		return
	}
	if t.watched[f.watch] == f {
		delete(t.watched, f.watch)
		t.control(func(events int) { _, _ = unix.InotifyRmWatch(events, uint32(f.watch)) })
	}
	f.watch = 0
}
