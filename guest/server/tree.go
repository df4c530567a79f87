package server

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// marker is the environment variable that identifies a command's processes after they have
// left its process tree and its session. A hostile command can unset it; only the sandbox's
// limits stop that one.
const marker = "BERTH_CALL"

// kill ends the command with everything that it started. It interrupts code of a kernel.
func (c *command) kill() {
	c.mu.Lock()
	pid, over := c.pid, c.over
	if !c.killed {
		close(c.stopped)
	}
	c.killed = true
	c.mu.Unlock()
	if pid != 0 {
		killTree(pid, over, c.mark())
	}
}

// killTree ends a process, its descendants, the sessions that they lead and every process
// with the mark. It stops them first, so that they cannot fork, and repeats the scan until
// none is left. If the root process has ended, its pid is not used.
func killTree(root int, over bool, mark string) {
	known := map[int]bool{}
	if !over {
		known[root] = true
	}
	for range 50 {
		alive := members(known, mark)
		if len(alive) == 0 {
			return
		}
		for _, pid := range alive {
			_ = unix.Kill(pid, unix.SIGSTOP)
		}
		if more := members(known, mark); len(more) > len(alive) {
			continue // a process started before the stop; stop it too
		}
		for _, pid := range alive {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// members returns the live processes that belong to the known ones, and adds them to known.
func members(known map[int]bool, mark string) []int {
	all := processList()
	for _, p := range all {
		if !known[p.pid] && mark != "" && p.marked(mark) {
			known[p.pid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if !known[p.pid] && (known[p.ppid] || known[p.session]) {
				known[p.pid], grown = true, true
			}
		}
	}
	var alive []int
	for _, p := range all {
		if known[p.pid] && p.state != 'Z' && p.state != 'X' {
			alive = append(alive, p.pid)
		}
	}
	return alive
}

// A proc is a line of the process list.
type proc struct {
	pid, ppid, session int
	state              byte
}

// processList reads /proc. It leaves out the guest itself, kernel threads and processes
// started from outside, such as a relay, whose parent is not in the sandbox.
func processList() []proc {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []proc
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", name, "stat"))
		if err != nil {
			continue
		}
		if p, ok := parseStat(stat); ok && p.pid == pid && p.ppid != 0 {
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads /proc/PID/stat: "pid (name) state ppid pgrp session …". The
// name may contain anything, also parentheses: the last one ends it.
func parseStat(stat []byte) (proc, bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 1 || end < open {
		return proc{}, false
	}
	rest := bytes.Fields(stat[end+1:])
	if len(rest) < 4 || len(rest[0]) != 1 {
		return proc{}, false
	}
	p := proc{state: rest[0][0]}
	for _, f := range []struct {
		to   *int
		from []byte
	}{{&p.pid, bytes.TrimSpace(stat[:open])}, {&p.ppid, rest[1]}, {&p.session, rest[3]}} {
		n, err := strconv.Atoi(string(f.from))
		if err != nil {
			return proc{}, false
		}
		*f.to = n
	}
	return p, true
}

// marked reports whether the process was started with the mark in its environment.
func (p proc) marked(mark string) bool {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "environ"))
	if err != nil {
		return false
	}
	want := []byte(marker + "=" + mark)
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(kv, want) {
			return true
		}
	}
	return false
}
