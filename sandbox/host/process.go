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

// Ended reports whether the process has ended: its number is not in use, or it is a zombie.
// It returns an error if that is unknown.
func Ended(pid int) (bool, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	// pid (comm) state: comm may hold anything, even parentheses.
	i := strings.LastIndexByte(string(raw), ')')
	if i < 0 || i+2 >= len(raw) {
		return false, fmt.Errorf("/proc/%d/stat: unexpected content", pid)
	}
	return raw[i+2] == 'Z' || raw[i+2] == 'X', nil
}

// Processes are handles on the processes that are sandboxes, by the id of the sandbox.
// A handle tells whether its process lives without opening anything, so it works when
// no descriptor is left, and it is never taken for another process of the same number.
// The zero value is ready. It is safe for concurrent use.
type Processes struct {
	mu    sync.Mutex
	known map[string]handle
}

type handle struct{ pid, fd int }

// Find returns the process of the sandbox and whether it lives. While there is no
// handle, search finds the process and one is opened. An error means that it is not
// known whether the process lives.
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
		return pid, true, nil // it is searched for again the next time
	}
	again, alive, err := search() // the number may have become another process's
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

// look asks the handle of a sandbox. A sandbox whose handle says that its process has
// ended is searched for again: it may have been made again.
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
