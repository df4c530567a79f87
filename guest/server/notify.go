package server

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
	ear     *ear // nil is none
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
	if t.ear == nil {
		t.open()
	}
	t.hear()
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
	bell, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = errors.Join(unix.SetNonblock(bell, true), arm(bell, unix.EPOLL_CTL_ADD, fd))
	}
	if err != nil {
		unix.Close(fd)
		unix.Close(bell)
		return
	}
	t.ear, t.watched = &ear{fd, os.NewFile(uintptr(bell), "inotify")}, map[int32]*folder{}
	go t.heed(t.ear)
}

// An ear is a queue of events, and what rings once when there are some. The runtime
// would else be woken for each of them, which takes longer than what changes a file.
type ear struct {
	inotify int // used by whoever has the tree's turn
	bell    *os.File
}

func arm(bell, op, fd int) error {
	return unix.EpollCtl(bell, op, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)})
}

func (t *tree) close() {
	if t.ear != nil {
		t.ear.bell.Close()
		unix.Close(t.ear.inotify)
		t.ear, t.watched = nil, nil
	}
}

// heed hears events soon after they come, because gVisor queues them without a bound.
func (t *tree) heed(e *ear) {
	conn, err := e.bell.SyscallConn()
	for err == nil { // until it is closed
		err = conn.Read(func(bell uintptr) bool {
			n, err := unix.EpollWait(int(bell), make([]unix.EpollEvent, 1), 0)
			return n > 0 || err != nil
		})
		if err == nil {
			time.Sleep(heedEvery)
			err = t.answer(conn, e)
		}
	}
}

// answer hears what the bell has rung for, and has it ring again.
func (t *tree) answer(conn syscall.RawConn, e *ear) (err error) {
	t.turn <- struct{}{}
	defer t.give()
	if t.ear == e {
		t.hear()
	}
	if t.ear != e {
		return os.ErrClosed
	}
	return errors.Join(conn.Control(func(bell uintptr) { err = arm(int(bell), unix.EPOLL_CTL_MOD, e.inotify) }), err)
}

// hear takes in the events that are there.
func (t *tree) hear() {
	if t.ear == nil {
		return
	}
	buf := make([]byte, 32<<10)
	for reads := 0; ; reads++ {
		n, err := unix.Read(t.ear.inotify, buf)
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
				t.distrust()
				return
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
	if t.ear != nil && !foreign {
		// By its path it might be another by now.
		if wd, err := unix.InotifyAddWatch(t.ear.inotify, fmt.Sprintf("/proc/self/fd/%d", fd), watchMask); err == nil {
			// A directory has one watch. If another folder has it, then the directory was
			// moved, or one of the two paths leads through a link that has replaced a folder.
			if g := t.watched[int32(wd)]; g != nil && g != f {
				if above := t.replaced(f); above != nil {
					t.doubt(above.parent)
					t.drop(above)
					return
				}
				g.watch = 0
				t.doubt(g)
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

// replaced returns the first folder above f whose path is not a directory any more, or
// nil.
func (t *tree) replaced(f *folder) (first *folder) {
	for above := f.parent; above != nil && above.parent != nil; above = above.parent {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(t.root, above.path("")), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			first = above
		}
	}
	return first
}

// unwatch ends that. A folder that was moved has its watch from where it is now.
func (t *tree) unwatch(f *folder) {
	if f.watch == 0 {
		return
	}
	if t.watched[f.watch] == f {
		delete(t.watched, f.watch)
		_, _ = unix.InotifyRmWatch(t.ear.inotify, uint32(f.watch))
	}
	f.watch = 0
}
