package server

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Intervals between checks of the limits: while there is no process but the guest, after such a
// time, while the guest is idle, while commands run, and when memory is short. A program can
// allocate more than a gigabyte a second.
const (
	watchAlone = 5 * time.Minute
	watchFirst = 500 * time.Millisecond
	watchIdle  = 2 * time.Second
	watchBusy  = 100 * time.Millisecond
	watchShort = 4 * time.Millisecond
)

// watchLimits ends single processes before the sandbox's hard limits end the sandbox: near
// the memory limit the largest process, above the process limit the tree of the command
// with the most processes. It only makes failure gentler.
func (s *Server) watchLimits(ctx context.Context) {
	if s.opts.MemoryLimit <= 0 && s.opts.PIDsLimit <= 0 {
		return
	}
	next := time.NewTimer(watchBusy)
	defer next.Stop()
	var processes time.Time // of their last check
	memory := memoryWatch{limit: s.opts.MemoryLimit}
	alone := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.reaper.began:
			if alone {
				alone = false
				next.Reset(watchFirst)
			}
			continue
		case <-next.C:
		}
		pause := watchIdle
		switch alone = false; {
		case s.shell.busy() || s.procs.busy():
			pause = watchBusy
		case len(processList()) == 0:
			alone, pause = true, watchAlone
		}
		if s.opts.PIDsLimit > 0 && time.Since(processes) >= pause {
			processes = time.Now()
			s.watchProcesses()
		}
		if s.opts.MemoryLimit > 0 && s.watchMemory(&memory) {
			pause = watchShort
		}
		next.Reset(pause)
	}
}

func (s *shell) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if !c.ended() {
			return true
		}
	}
	return false
}

func (ps *processes) busy() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.live {
		select {
		case <-p.done:
		default:
			return true
		}
	}
	return false
}

func (s *Server) watchProcesses() {
	all := processList()
	if len(all) <= s.opts.PIDsLimit || !s.reaper.still.TryLock() {
		return
	}
	defer s.reaper.still.Unlock()
	for _, p := range all { // no process starts during the loop
		_ = unix.Kill(p.pid, unix.SIGSTOP)
	}
	worst, most := (*command)(nil), 0
	for _, c := range s.shell.commands() {
		known := map[int]bool{}
		if pid, over := c.shellPID(); !over {
			known[pid] = true
		}
		if n := len(members(known, c.mark())); n > most {
			worst, most = c, n
		}
	}
	if worst != nil {
		fmt.Fprintf(worst.stderr, "berth: the limit of %d processes was reached; the command was ended\n",
			s.opts.PIDsLimit)
		worst.kill()
	}
	rest := processList()
	if len(rest) > s.opts.PIDsLimit { // orphans that belong to no command
		for _, p := range rest {
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
		return
	}
	for _, p := range rest {
		_ = unix.Kill(p.pid, unix.SIGCONT)
	}
}

// commands returns the commands of all recorded calls: ended ones may have background
// processes.
func (s *shell) commands() []*command {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*command
	for _, c := range s.calls {
		all = append(all, c.commands...)
	}
	return all
}

func (c *command) shellPID() (pid int, over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid, c.over || c.pid == 0
}

// A memoryWatch decides when a process must be ended because of the memory.
type memoryWatch struct {
	limit int64     // of the sandbox, in bytes
	last  proc      // the process that was last ended
	ended time.Time // when it last held memory
	used  int64     // what was used when it was ended, in bytes
}

// memoryRelease is how long a kernel may take to count memory as free that an ended process no longer holds.
const memoryRelease = 500 * time.Millisecond

// short reports whether memory should be watched closely.
func (w *memoryWatch) short(used int64) bool { return used >= w.limit/100*40 }

// full reports whether a process must be ended. After it has ended one, it waits until the kernel counts the memory as
// free, unless the use grows further.
func (w *memoryWatch) full(used int64, now time.Time) bool {
	if used < w.limit/100*92 {
		w.used = 0 // it was released
		return false
	}
	return used > w.used || now.Sub(w.ended) >= memoryRelease
}

// holds records how much memory the process that was last ended still has: on a busy machine it ends late.
func (w *memoryWatch) holds(resident int64, now time.Time) {
	if resident > 0 {
		w.ended = now
	}
}

// watchMemory ends the largest process if memory is nearly used up, and reports
// whether it is short enough to be watched closely.
func (s *Server) watchMemory(w *memoryWatch) (short bool) {
	used, ok := memoryUsed()
	if !ok || !w.short(used) {
		return false
	}
	if w.used > 0 {
		w.holds(w.last.resident(), time.Now())
	}
	if !w.full(used, time.Now()) {
		return true
	}
	greedy, most := s.reaper.largestOf(func(proc) bool { return true })
	if most < s.opts.MemoryLimit/10 {
		return true // files or many small processes use the memory: ending one would not help
	}
	_ = unix.Kill(greedy.pid, unix.SIGSTOP) // it allocates nothing more until it is killed
	if c := s.shell.owner(greedy); c != nil {
		fmt.Fprintf(c.stderr, "berth: memory is nearly used up; a process with %d MB was ended\n", most>>20)
	}
	_ = unix.Kill(greedy.pid, unix.SIGKILL)
	w.last, w.ended, w.used = greedy, time.Now(), used
	return true
}

// largestOf returns the wanted process with the most resident memory, in bytes. It leaves out children of the guest
// that have not executed their program yet: they still show the guest's memory.
func (r *reaper) largestOf(wanted func(proc) bool) (greedy proc, most int64) {
	all := processList()
	started := r.still.TryLock() // then all that are listed have executed their programs
	if started {
		r.still.Unlock()
	}
	for _, p := range all {
		if !wanted(p) || !started && p.ppid == os.Getpid() && !r.has(p.pid) {
			continue
		}
		if rss := p.resident(); rss > most {
			greedy, most = p, rss
		}
	}
	return greedy, most
}

// owner returns the command that the process belongs to, or nil.
func (s *shell) owner(p proc) *command {
	for _, c := range s.commands() {
		if pid, over := c.shellPID(); (!over && (pid == p.pid || pid == p.session)) || p.marked(c.mark()) {
			return c
		}
	}
	return nil
}

// memoryUsed returns the memory of all processes, in bytes. /proc/meminfo describes the
// sandbox only if it has a kernel of its own; otherwise its control group does.
func memoryUsed() (int64, bool) {
	if used, ok := groupMemory("/sys/fs/cgroup"); ok {
		return used, true
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	total, ok1 := meminfo(text, "MemTotal:")
	available, ok2 := meminfo(text, "MemAvailable:")
	return total - available, ok1 && ok2
}

// groupMemory returns the memory of the control group at root, of version 2 or 1, if the
// group has a limit. Pages of files that the kernel reclaims first do not count.
func groupMemory(root string) (int64, bool) {
	for _, g := range []struct{ dir, limit, usage, cache string }{
		{root, "memory.max", "memory.current", "inactive_file"},
		{root + "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
	} {
		number := func(name string) (int64, bool) {
			text, err := os.ReadFile(filepath.Join(g.dir, name))
			if err != nil {
				return 0, false
			}
			n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
			return n, err == nil
		}
		if limit, ok := number(g.limit); !ok || limit >= 1<<60 { // "max", or the largest there is
			continue
		}
		used, ok := number(g.usage)
		stat, err := os.ReadFile(filepath.Join(g.dir, "memory.stat"))
		if !ok || err != nil {
			continue
		}
		for line := range bytes.Lines(stat) {
			if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == g.cache {
				cache, err := strconv.ParseInt(string(f[1]), 10, 64)
				return max(used-cache, 0), err == nil
			}
		}
	}
	return 0, false
}

func meminfo(text []byte, key string) (int64, bool) {
	for line := range bytes.Lines(text) {
		if f := bytes.Fields(line); len(f) >= 2 && string(f[0]) == key {
			kb, err := strconv.ParseInt(string(f[1]), 10, 64)
			return kb << 10, err == nil
		}
	}
	return 0, false
}

func (p proc) resident() int64 {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "statm"))
	if err != nil {
		return 0
	}
	f := bytes.Fields(text)
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(f[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
