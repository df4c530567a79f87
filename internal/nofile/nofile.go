// Package nofile says how many files a process may have open, and holds some descriptors
// back for what must not fail for the lack of one.
package nofile

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// held is how many descriptors Reserve holds back. Starting a sandbox takes about ten.
const held = 32

// Limit returns how many files this process may have open. Go raises the soft limit to
// the hard one at the start of every program that imports os.
func Limit() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 1024
	}
	return int(min(l.Cur, 1<<30))
}

// Exhausted reports whether an error says that no descriptor is left, in the process or
// on the machine.
func Exhausted(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// Available returns an error if no file can be opened now.
func Available() error {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	return f.Close()
}

var reserve struct {
	mu    sync.Mutex
	files []*os.File
}

// Reserve holds descriptors back for Retry, from now on.
func Reserve() {
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	fill()
}

func fill() {
	for len(reserve.files) < held {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return // missing ones are opened the next time
		}
		reserve.files = append(reserve.files, f)
	}
}

// Retry calls f, and once more with the descriptors that are held back if it failed
// because none was left.
func Retry(f func() error) error {
	err := f()
	if !Exhausted(err) {
		return err
	}
	reserve.mu.Lock()
	defer reserve.mu.Unlock()
	if len(reserve.files) == 0 {
		return err
	}
	for _, file := range reserve.files {
		file.Close()
	}
	reserve.files = nil
	defer fill()
	return f()
}
