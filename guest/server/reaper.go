package server

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A reaper waits for orphans, which the guest inherits as PID 1. It inspects a dead child
// before it waits for it, and skips those that were started through it, whose starters
// wait for them.
type reaper struct {
	mu    sync.Mutex // held from the start of a child until it is owned
	owned sync.Map   // pid to true; written with mu held
	poke  chan os.Signal
	began chan struct{} // buffered: a process was started
	still sync.RWMutex  // write-locked while no process may be started
	spare bool          // the kernel does not end the guest when memory is short

	starter starter // nil unless PID 1
}

func newReaper() (r *reaper, err error) {
	r = &reaper{poke: make(chan os.Signal, 1), began: make(chan struct{}, 1)}
	own, _ := os.ReadFile("/proc/self/oom_score_adj")
	r.spare = bytes.HasPrefix(own, []byte("-"))
	if os.Getpid() == 1 {
		signal.Notify(r.poke, unix.SIGCHLD)
		go r.run()
		if os.Getuid() == 0 {
			if err := hideDevices("/dev"); err != nil {
				return nil, fmt.Errorf("hide devices: %w", err)
			}
		}
		r.starter, err = newStarter()
	}
	return r, err
}

// start starts a command whose Wait the caller will call, and then release.
func (r *reaper) start(cmd *exec.Cmd) error {
	r.still.RLock()
	defer r.still.RUnlock()
	r.mu.Lock()
	defer r.mu.Unlock() // a child that dies immediately is registered before reap sees it
	if err := r.starter.start(cmd); err != nil {
		return err
	}
	r.owned.Store(cmd.Process.Pid, true)
	select {
	case r.began <- struct{}{}:
	default:
	}
	if r.spare { // the child has inherited this
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("0"), 0)
	}
	return nil
}

// has reports whether a child was started through r, has executed its program and was not released. It does not wait
// for a start in progress.
func (r *reaper) has(pid int) bool {
	_, ok := r.owned.Load(pid)
	return ok
}

// release records that the Wait for a child has returned.
func (r *reaper) release(pid int) {
	r.mu.Lock()
	r.owned.Delete(pid)
	r.mu.Unlock()
	select {
	case r.poke <- unix.SIGCHLD: // this child may have hidden the next dead one
	default:
	}
}

func (r *reaper) run() {
	for range r.poke {
		for r.reap() {
		}
	}
}

// reap waits for one dead orphan and reports whether there may be another. A dead child
// with an owner hides further ones until its owner has waited for it.
func (r *reaper) reap() bool {
	pid := deadChild()
	if pid <= 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.has(pid) {
		return false
	}
	_, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return err == nil
}

// deadChild returns the pid of a child that has died and has not been waited
// for, without waiting for it; 0 if there is none.
func deadChild() int {
	// struct siginfo of SIGCHLD: three ints (and padding on 64 bits), then si_pid.
	var info struct {
		_   [3]int32
		_   [unsafe.Sizeof(uintptr(0)) - 4]byte
		pid int32
		_   [128]byte
	}
	_, _, errno := syscall.Syscall6(unix.SYS_WAITID, unix.P_ALL, 0, uintptr(unsafe.Pointer(&info)),
		unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(info.pid)
}
