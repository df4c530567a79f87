// Package changes finds the files that a command changed, by a scan of the working
// directory before and after it. If the kernel reports changes (inotify), a scan reads only
// those; otherwise it walks the directory.
//
// inotify is used without a library, to read events in batches some time after the first
// one: waking up for each event takes longer than most changes.
package changes

import (
	"slices"
	"strings"
	"time"

	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
)

// maxChanges bounds the reported changes; of further ones only the number is reported.
const maxChanges = 200

// A Scene records how files were before a call, of those that have changed since.
type Scene struct {
	before map[place]fileMark // zero: there was no file
	lost   bool               // the earlier state is unknown
}

// A place is where a file is or was.
type place struct {
	in   *folder
	name string
}

// note records for all running calls the mark of a file before its change.
func (t *Tree) note(f *folder, name string, was fileMark) {
	at := place{f, name}
	for s := range t.scenes {
		if _, ok := s.before[at]; !ok {
			s.before[at] = was
			s.held(t, 1)
		}
	}
}

func (s *Scene) held(t *Tree, files int) { t.held += files * placeCost }

// Begin scans before a call.
func (t *Tree) Begin() *Scene {
	s := &Scene{before: map[place]fileMark{}}
	late := t.clock.After(beforeGuard)
	if !t.acquire(late) {
		s.lost = true
		return s
	}
	defer t.release()
	if s.lost = !t.scan(t.budget(t.limits.before, late)); !s.lost {
		t.scenes[s] = true
	}
	return s
}

// End scans again after the call and returns the changes of the files, or nil if they are
// unknown.
func (t *Tree) End(s *Scene) *v1.Changes {
	t.acquire(nil)
	defer t.release()
	known := !s.lost && t.scan(t.budget(t.limits.after, t.clock.After(afterGuard))) && !s.lost
	if t.scenes[s] {
		delete(t.scenes, s)
		s.held(t, -len(s.before))
	}
	var changes *v1.Changes
	if known {
		changes = s.changes()
	}
	t.prune()
	if t.notify && len(t.stale) > 0 {
		go t.scanOn() // for the next call
	}
	return changes
}

func (s *Scene) changes() *v1.Changes {
	all := &v1.Changes{}
	less := func(a, b *v1.Change) int { return strings.Compare(a.Path, b.Path) }
	for at, was := range s.before {
		is := at.in.files[at.name]
		c := &v1.Change{Bytes: uint64(is.size), Modified: is.modified / int64(time.Second)}
		switch {
		case is == was:
			continue // also a file that was created and removed
		case was == fileMark{}:
			c.Kind = v1.Change_CREATED
		case is == fileMark{}:
			c.Kind, c.Bytes, c.Modified = v1.Change_DELETED, uint64(was.size), 0
		default:
			c.Kind = v1.Change_UPDATED
		}
		c.Path = strings.ToValidUTF8(at.in.path(at.name), "\uFFFD")
		i, _ := slices.BinarySearchFunc(all.Files, c, less)
		if len(all.Files) == maxChanges {
			all.More++
			if i == maxChanges {
				continue
			}
			all.Files = all.Files[:maxChanges-1]
		}
		all.Files = slices.Insert(all.Files, i, c)
	}
	return all
}
