package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Ended reports whether a process has ended: its number is unused, or it is a zombie. It
// returns an error if that is unknown.
func Ended(pid int) (bool, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	// The line is "pid (comm) state …". comm may contain any characters, even parentheses.
	i := strings.LastIndexByte(string(raw), ')')
	if i < 0 || i+2 >= len(raw) {
		return false, fmt.Errorf("/proc/%d/stat: unexpected content", pid)
	}
	return raw[i+2] == 'Z' || raw[i+2] == 'X', nil
}

// Processes are handles on the processes of sandboxes, by the id of the sandbox. A handle
// reports whether its process is alive without opening a file, so it works without a free
// descriptor, and it never refers to another process with the same number. The zero value is
// ready. It is safe for concurrent use.
type Processes struct {
	mu    sync.Mutex
	known map[string]handle
}

type handle struct{ pid, fd int }

// Find returns the process of the sandbox and whether it is alive. If there is no handle, it
// calls search and opens one. An error means that the process's state is unknown.
func (p *Processes) Find(id string, search func() (pid int, alive bool, err error)) (pid int, alive bool, err error) {
	if pid, alive, err := p.look(id); alive || err != nil {
		return pid, alive, err
	}
	pid, alive, err = search()
	if err != nil || !alive {
		return 0, false, err
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return pid, true, nil // the next call searches again
	}
	again, alive, err := search() // the number may have been reused
	if err != nil || !alive || again != pid {
		unix.Close(fd)
		return again, alive, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close(id)
	if p.known == nil {
		p.known = map[string]handle{}
	}
	p.known[id] = handle{pid, fd}
	return pid, true, nil
}

// look queries the handle of a sandbox. If the handle's process has ended, the sandbox is
// searched again, because it may have been created again.
func (p *Processes) look(id string) (pid int, alive bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, ok := p.known[id]
	if !ok {
		return 0, false, nil
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, false, fmt.Errorf("poll process %d: %w", h.pid, err)
		case n == 0:
			return h.pid, true, nil
		default:
			p.close(id)
			return 0, false, nil
		}
	}
}

// Forget closes the handle of a sandbox, if there is one.
func (p *Processes) Forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.close(id)
}

func (p *Processes) close(id string) {
	if h, ok := p.known[id]; ok {
		unix.Close(h.fd)
		delete(p.known, id)
	}
}
