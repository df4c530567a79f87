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

// The sandbox's memory is measured often enough that it cannot exceed its limit by much in between at
// fillRate.
const (
	fillRate = 2 << 30 // bytes per second, the rate at which the kernel can provide zeroed memory
	soonest  = 5 * time.Millisecond
	latest   = 500 * time.Millisecond
)

// A watch monitors one sandbox.
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

// find determines the processes of the sandbox that runsc has started.
func (w *watch) find() error {
	pid, err := sentry()
	if err != nil {
		return err
	}
	if w.pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
		return fmt.Errorf("find sentry: %w", err)
	}
	w.sentry, w.procs, w.files = pid, children(), openFiles(pid)
	if len(w.files) == 0 {
		return errors.New("cannot find the sentry's memory: process " + strconv.Itoa(pid))
	}
	return nil
}

// run returns when the sandbox has ended. It ends a sandbox that exceeds its memory limit.
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

// measure returns the sandbox's memory and disk usage in bytes.
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
