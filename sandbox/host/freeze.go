package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Signal sends a signal to the process of a sandbox. It does nothing if the process is not
// alive.
func (p *Processes) Signal(id string, search func() (pid int, alive bool, err error), sig unix.Signal) (pid int,
	err error) {
	pid, alive, err := p.Find(id, search)
	if err != nil || !alive {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	h, ok := p.known[id]
	if !ok || h.pid != pid {
		return 0, fmt.Errorf("process %d has no descriptor", pid)
	}
	if err := unix.PidfdSendSignal(h.fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return 0, fmt.Errorf("signal process %d: %w", pid, err)
	}
	return pid, nil
}

// SignalChildren sends a signal to the children of a process, and returns them.
func SignalChildren(parent int, sig unix.Signal) (pids []int, err error) {
	pids, err = children(parent)
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		if err := signalChild(parent, pid, sig); err != nil {
			return nil, err
		}
	}
	return pids, nil
}

// signalChild sends a signal to a process if parent is its parent.
func signalChild(parent, pid int, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	fields, err := stat(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil || len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
		return err // the number is reused by another process
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", pid, err)
	}
	return nil
}

// children returns the children of all threads of a process.
func children(parent int) (pids []int, err error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", parent))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, task := range tasks {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", parent, task.Name()))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, f := range strings.Fields(string(raw)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, nil
}

// awaitStopped returns when all threads of a process have stopped, or the process has ended. A
// thread stops at the end of its system call.
func awaitStopped(ctx context.Context, pid int) error {
	for wait := 200 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		stopped, err := isStopped(pid)
		if err != nil || stopped {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for process %d to stop: %w", pid, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

func isStopped(pid int) (bool, error) {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, task := range tasks {
		fields, err := stat(fmt.Sprintf("/proc/%d/task/%s/stat", pid, task.Name()))
		if err != nil {
			return false, err
		}
		if len(fields) > 0 && !strings.Contains("TtZX", fields[0]) {
			return false, nil
		}
	}
	return true, nil
}

// stat returns the fields of proc_pid_stat(5) starting with the state. It returns nil if the
// process does not exist.
func stat(path string) ([]string, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// The line is "pid (comm) state …". comm may contain any characters, even parentheses.
	return strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:])), nil
}
