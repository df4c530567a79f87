package warden

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The memory of a sandbox is looked at often enough that what it can take meanwhile,
// at fillRate, does not carry it far beyond its limit.
const (
	fillRate = 2 << 30 // bytes a second; to give a process zeroed memory takes that long
	soonest  = 5 * time.Millisecond
	latest   = 500 * time.Millisecond
)

// A watch looks after one sandbox.
type watch struct {
	limit  int64
	sentry int
	pidfd  int
	procs  []int // the sentry and the gofer
	oom    atomic.Bool

	mu    sync.Mutex
	files []open
	peak  int64
}

// find finds the sandbox that runsc has started.
func (w *watch) find() error {
	pid, err := sentry()
	if err != nil {
		return err
	}
	if w.pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
		return fmt.Errorf("the sentry: %w", err)
	}
	w.sentry, w.procs, w.files = pid, children(), openFiles(pid)
	if len(w.files) == 0 {
		return errors.New("the sentry's memory is not to be found: process " + strconv.Itoa(pid))
	}
	return nil
}

// run returns when the sandbox has ended. It ends it when it has too much memory.
func (w *watch) run() {
	for {
		used, _ := w.measure()
		room := w.limit - used
		if room < 0 && w.limit > 0 {
			w.oom.Store(true)
			syscall.Kill(w.sentry, syscall.SIGKILL)
		}
		wait := min(max(time.Duration(float64(room)/fillRate*float64(time.Second)), soonest), latest)
		fds := []unix.PollFd{{Fd: int32(w.pidfd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, int(wait.Milliseconds())); err == nil && n > 0 {
			return
		}
	}
}

// measure returns the bytes of memory and of disk that the sandbox has.
func (w *watch) measure() (memory, disk int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[[2]uint64]bool)
	for _, f := range w.files {
		size, id := f.size()
		if seen[id] {
			continue
		}
		seen[id] = true
		if f.disk {
			disk += size
		} else {
			memory += size
		}
	}
	for _, pid := range w.procs {
		memory += anonymous(pid)
	}
	w.peak = max(w.peak, memory)
	return memory, disk
}

func (w *watch) usage() Usage {
	u := account()
	u.Memory, u.Disk = w.measure()
	u.Peak = w.peak
	return u
}
