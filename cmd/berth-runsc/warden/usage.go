package warden

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Usage is the resource usage of the sandbox's processes.
type Usage struct {
	CPU    time.Duration `json:"cpu"`
	Memory int64         `json:"memory"` // bytes, without file pages
	Peak   int64         `json:"peak"`
	PIDs   int           `json:"pids"` // processes and threads
	Disk   int64         `json:"disk"` // bytes
}

// tick is the unit of times in /proc on Linux.
const tick = 10 * time.Millisecond

// account sums up the processor time and the number of all processes but this one.
func account() (u Usage) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return u
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		raw, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// pid (comm) state ppid …: comm may contain anything, even parentheses.
		text := string(raw)
		f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if len(f) < 18 {
			continue
		}
		for _, field := range f[11:15] { // user and system time of the process and of its dead children
			n, _ := strconv.ParseInt(field, 10, 64)
			u.CPU += time.Duration(n) * tick
		}
		threads, _ := strconv.Atoi(f[17])
		u.PIDs += threads
	}
	return u
}

// An open is an open file of the sentry.
type open struct {
	path string // below /proc
	disk bool   // a file of the writable layer, otherwise of memory
}

// openFiles returns the open files that hold a sentry's memory and writable layer.
func openFiles(pid int) (files []open) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		target, err := os.Readlink(dir + e.Name())
		if err != nil {
			continue
		}
		_, base, _ := cutLast(target, "/")
		switch {
		case strings.HasPrefix(target, "/memfd:runsc-"):
			files = append(files, open{path: dir + e.Name()})
		case strings.HasPrefix(base, "runsc-filestore-"):
			files = append(files, open{path: dir + e.Name(), disk: true})
		}
	}
	return files
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	return s[:max(i, 0)], s[i+1:], i >= 0
}

// size returns the bytes that a file occupies, and its identity. A sentry's program is in memory, too, but
// is not counted.
func (o open) size() (bytes int64, id [2]uint64) {
	var st unix.Stat_t
	if unix.Stat(o.path, &st) != nil || st.Nlink != 0 {
		return 0, id
	}
	return st.Blocks * 512, [2]uint64{st.Dev, st.Ino}
}

// anonymous returns the bytes of a process's anonymous memory.
func anonymous(pid int) int64 {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	sum := int64(0)
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) == 3 && (f[0] == "RssAnon:" || f[0] == "VmSwap:") {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			sum += kb << 10
		}
	}
	return sum
}

// children returns this process's children: the sentry and the gofer, once runsc has exited.
func children() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		raw, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
		if len(f) > 1 && f[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, pid)
		}
	}
	return pids
}
