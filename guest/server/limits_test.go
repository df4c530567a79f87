package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/guest/changes"
)

func TestGroupMemory(t *testing.T) {
	const none = -1
	for name, tt := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"Nothing": {nil, none},
		"Version2": {map[string]string{"memory.max": "1000\n", "memory.current": "900\n",
			"memory.stat": "anon 1\ninactive_file 300\nactive_file 5\n"}, 600},
		"Version2Unlimited": {map[string]string{"memory.max": "max\n", "memory.current": "900\n",
			"memory.stat": "inactive_file 300\n"}, none},
		"Version1": {map[string]string{"memory/memory.limit_in_bytes": "1000\n",
			"memory/memory.usage_in_bytes": "900\n",
			"memory/memory.stat":           "inactive_file 1\ntotal_inactive_file 200\n"}, 700},
		"Version1Unlimited": {map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n",
			"memory/memory.usage_in_bytes": "900\n", "memory/memory.stat": "total_inactive_file 200\n"}, none},
		"MoreCacheThanUsed": {map[string]string{"memory.max": "1000", "memory.current": "1",
			"memory.stat": "inactive_file 2"}, 0},
		"Nonsense": {map[string]string{"memory.max": "1000", "memory.current": "x", "memory.stat": "inactive_file 2"},
			none},
	} {
		root := t.TempDir()
		for file, content := range tt.files {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, ok := groupMemory(root)
		if !ok {
			got = none
		}
		if got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}

// TestMemoryWatch checks that one shortage of memory ends one process: kernels count the memory
// of an ended process as used for some time, and the next process is not to blame.
func TestMemoryWatch(t *testing.T) {
	const limit = 1000
	now := time.Now()
	w := memoryWatch{limit: limit}
	for _, step := range []struct {
		name        string
		used        int64
		after       time.Duration
		short, full bool
	}{
		{"quiet", 300, 0, false, false},
		{"short", 500, 0, true, false},
		{"full", 950, 0, true, true},
		{"not yet released", 950, 10 * time.Millisecond, true, false},
		{"partly released", 930, 20 * time.Millisecond, true, false},
		{"another process takes more", 951, 30 * time.Millisecond, true, true},
		{"not yet released again", 951, 40 * time.Millisecond, true, false},
		{"used by others after all", 940, 30*time.Millisecond + memoryRelease, true, true},
		{"released", 500, 31*time.Millisecond + memoryRelease, true, false},
		{"the next one", 930, 32*time.Millisecond + memoryRelease, true, true},
	} {
		at := now.Add(step.after)
		short, full := w.short(step.used), w.full(step.used, at)
		if short != step.short || full != step.full {
			t.Errorf("%s: got short %t, full %t, want %t, %t", step.name, short, full, step.short, step.full)
		}
		if full {
			w.ended, w.used = at, step.used
		}
	}
}

// TestLargest checks that a starting process is not taken for a large one: until it executes its
// program, it shows the memory of the guest. A guest without CAP_SYS_PTRACE cannot read which program a process of
// another user executes.
func TestLargest(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("skipped: needs root, to start processes of another user")
	}
	r, err := newReaper()
	if err != nil {
		t.Fatal(err)
	}
	ballast := make([]byte, 256<<20)
	for i := 0; i < len(ballast); i += 4 << 10 {
		ballast[i] = 1
	}
	stop := make(chan struct{})
	var starts sync.WaitGroup
	defer starts.Wait()
	defer close(stop)
	for range 2 {
		starts.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				cmd := exec.Command("/bin/true")
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
				if err := r.start(cmd); err != nil {
					t.Error(err)
					return
				}
				if err := cmd.Wait(); err != nil {
					t.Error(err)
				}
				r.release(cmd.Process.Pid)
			}
		})
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends without its capabilities
		result <- func() error {
			if err := dropPtrace(); err != nil {
				return err
			}
			for range 2000 {
				p, most := r.largestOf(func(p proc) bool { return p.ppid == os.Getpid() })
				if most >= int64(len(ballast)) {
					return fmt.Errorf("process %d: got %d MB, want the memory of /bin/true", p.pid, most>>20)
				}
			}
			return nil
		}()
	}()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	runtime.KeepAlive(ballast)
}

// dropPtrace drops CAP_SYS_PTRACE from the calling thread, as guests do not have it.
func dropPtrace() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	data[0].Effective &^= 1 << unix.CAP_SYS_PTRACE
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("drop a capability: %w", err)
	}
	return nil
}

// TestReleaseBegins checks that memory of a killed process that has not ended yet is waited for.
func TestReleaseBegins(t *testing.T) {
	const limit = 1000
	killed := time.Now()
	w := memoryWatch{limit: limit, ended: killed, used: 950}
	late := killed.Add(10 * memoryRelease)
	w.holds(1, late)
	if w.full(950, late.Add(memoryRelease/2)) {
		t.Error("a second process is ended although the first has only just let go of its memory")
	}
	w.holds(0, late.Add(memoryRelease))
	if !w.full(950, late.Add(memoryRelease)) {
		t.Error("no process is ended although the memory was not released")
	}
}

func TestNamed(t *testing.T) {
	for entry, want := range map[string]string{
		"etc/hosts": "/etc/hosts", "etc/.wh.hosts": "/etc/hosts", "proc/": "/proc", "mnt/data/a": "/mnt/data/a",
	} {
		if got := named(entry); got != want {
			t.Errorf("named(%q): got %q, want %q", entry, got, want)
		}
	}
	if !changes.MountPoints()["/proc"] {
		t.Error("/proc is not among the mount points")
	}
}
