package warden

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Usage is what the processes of the sandbox use.
type Usage struct {
	CPU    time.Duration `json:"cpu"`
	Memory int64         `json:"memory"` // bytes, without what is read from files
	Peak   int64         `json:"peak"`
	PIDs   int           `json:"pids"` // processes and threads
	Disk   int64         `json:"disk"` // bytes
}

// tick is the unit of times in /proc, on every Linux.
const tick = 10 * time.Millisecond

// account adds up what all processes but this one use of processors.
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
		// pid (comm) state ppid …: comm may hold anything, even parentheses.
		text := string(raw)
		f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if len(f) < 18 {
			continue
		}
		for _, field := range f[11:15] { // its own and of its dead children, in either mode
			n, _ := strconv.ParseInt(field, 10, 64)
			u.CPU += time.Duration(n) * tick
		}
		threads, _ := strconv.Atoi(f[17])
		u.PIDs += threads
	}
	return u
}

// An open file of the sentry's.
type open struct {
	path string // below /proc
	disk bool   // of the writable layer, and not of memory
}

// openFiles returns those files of a sentry that its memory and its disk are.
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

// size returns the bytes that a file takes, and what tells it from others. A sentry's
// program is in memory as well, but not its own.
func (o open) size() (bytes int64, id [2]uint64) {
	var st unix.Stat_t
	if unix.Stat(o.path, &st) != nil || st.Nlink != 0 {
		return 0, id
	}
	return st.Blocks * 512, [2]uint64{st.Dev, st.Ino}
}

// anonymous returns the bytes of a process's memory that are no file's.
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

// children returns the processes that have this one as their parent: the sentry and
// the gofer, when runsc is gone.
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
