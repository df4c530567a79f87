package server

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	v1 "github.com/berth-run/berth/guest/guestpb/berth/guest/v1"
)

// Bounds on looking at the working directory before and after a call. In one that
// exceeds them, nobody is told what a call changed.
const (
	maxFilesSeen = 10_000
	maxSeeing    = 50 * time.Millisecond // each time
	maxChanges   = 200                   // told; of more only their number
)

// A fileMark tells versions of a regular file apart.
type fileMark struct {
	inode    uint64
	size     int64
	modified int64 // as its owner likes to have it, in nanoseconds
	changed  int64 // as the kernel saw it
}

var errTooMany = errors.New("too many files")

// eachFile calls f for the regular files below a directory with their paths in it,
// and reports whether these are all: it gives up where that would take long.
func eachFile(dir string, f func(name string, d fs.DirEntry)) (all bool) {
	begin, n := time.Now(), 0
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if n++; n > maxFilesSeen || time.Since(begin) > maxSeeing {
			return errTooMany
		}
		if err == nil && d.Type().IsRegular() {
			f(strings.TrimPrefix(path, dir+"/"), d)
		}
		return nil // what cannot be read is none of ours
	}) == nil
}

// A scene is the files of the working directory before a call. Looking at names
// alone is cheap; what the last call left tells the rest.
type scene struct {
	dir   string
	names map[string]bool // nil if there are too many
	left  map[string]fileMark
	began int64 // by the clock of the file system
}

// look looks before a call. left is what the call before has found at its end.
func look(dir, scratch string, left map[string]fileMark) *scene {
	s := &scene{dir: filepath.Clean(dir), names: map[string]bool{}, left: left}
	if !eachFile(s.dir, func(name string, _ fs.DirEntry) { s.names[name] = true }) {
		s.names = nil
	}
	if f, err := os.CreateTemp(scratch, "clock-*"); err == nil {
		if m, ok := markOf(f.Stat()); ok {
			s.began = m.changed
		}
		f.Close()
		os.Remove(f.Name())
	}
	return s
}

func markOf(info fs.FileInfo, err error) (fileMark, bool) {
	if err != nil {
		return fileMark{}, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileMark{}, false
	}
	return fileMark{st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, true
}

// changes looks again, after the call, and says what became of the files; nil if
// there were or are too many. It returns what the call leaves.
func (s *scene) changes() (*v1.Changes, map[string]fileMark) {
	now := map[string]fileMark{}
	if s.names == nil || !eachFile(s.dir, func(name string, d fs.DirEntry) {
		if m, ok := markOf(d.Info()); ok {
			now[name] = m
		}
	}) {
		return nil, nil
	}
	all := &v1.Changes{}
	add := func(name string, kind v1.Change_Kind, size int64) {
		all.Files = append(all.Files, &v1.Change{Path: strings.ToValidUTF8(name, "\uFFFD"), Kind: kind, Bytes: uint64(size)})
	}
	for name, is := range now {
		if !s.names[name] {
			add(name, v1.Change_CREATED, is.size)
		} else if is.changed >= s.began && is != s.left[name] {
			add(name, v1.Change_UPDATED, is.size)
		}
	}
	for name := range s.names {
		if _, ok := now[name]; !ok {
			add(name, v1.Change_DELETED, s.left[name].size)
		}
	}
	slices.SortFunc(all.Files, func(a, b *v1.Change) int { return strings.Compare(a.Path, b.Path) })
	if n := len(all.Files); n > maxChanges {
		all.Files, all.More = all.Files[:maxChanges], uint64(n-maxChanges)
	}
	return all, now
}
