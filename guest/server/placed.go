package server

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"

	"github.com/berth-run/berth/internal/beneath"
)

// temporaryName matches the names that uploads have before they take their places.
var temporaryName = regexp.MustCompile(`^\.berth-[A-Z2-7]{26}$`)

// maxPlaced is the most uploads that are remembered for watchers.
const maxPlaced = 1024

// placedFiles remembers the latest uploads while directories are watched. An upload is written beside its
// place and then moved there, which the kernel reports as a new file. Clients of E2B expect the events of a
// file that is written in place.
type placedFiles struct {
	mu       sync.Mutex
	watchers int
	existed  map[placedFile]bool // whether the upload replaced a file
	order    []placedFile
}

// A placedFile identifies an upload in its place.
type placedFile struct {
	device, inode, directory uint64
	name                     string
}

// watch adds a watcher, or removes one if n is -1.
func (p *placedFiles) watch(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watchers += n; p.watchers == 0 {
		p.existed, p.order = nil, nil
	}
}

// rename moves a file within dir to its place. A watcher that learns of it waits until it is remembered.
func (p *placedFiles) rename(dir *beneath.Root, file fs.FileInfo, temporary, name string, existed bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := dir.Rename(temporary, name); err != nil || p.watchers == 0 {
		return err
	}
	parent, err := dir.Stat(".")
	if err != nil {
		return nil // it is in its place
	}
	placed, ok := placedAs(file, parent, name)
	if !ok {
		return nil
	}
	if p.existed == nil {
		p.existed = map[placedFile]bool{}
	}
	if len(p.order) == maxPlaced {
		delete(p.existed, p.order[0])
		p.order = p.order[1:]
	}
	p.existed[placed] = existed
	p.order = append(p.order, placed)
	return nil
}

// find reports whether the file at a path was uploaded, and whether it then replaced another one.
func (p *placedFiles) find(path string) (uploaded, existed bool) {
	file, err := os.Lstat(path)
	if err != nil {
		return false, false
	}
	parent, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return false, false
	}
	placed, ok := placedAs(file, parent, filepath.Base(path))
	if !ok {
		return false, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	existed, uploaded = p.existed[placed]
	return uploaded, existed
}

func placedAs(file, parent fs.FileInfo, name string) (placedFile, bool) {
	f, ok := file.Sys().(*syscall.Stat_t)
	if !ok {
		return placedFile{}, false
	}
	d, ok := parent.Sys().(*syscall.Stat_t)
	if !ok {
		return placedFile{}, false
	}
	return placedFile{uint64(f.Dev), f.Ino, d.Ino, name}, true
}
