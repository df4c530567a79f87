package server

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

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
// program, it shows the memory of the guest.
func TestLargest(t *testing.T) {
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
				if err := exec.Command("/bin/true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2000 {
		var mine []proc
		for _, p := range processList() {
			if p.ppid == os.Getpid() {
				mine = append(mine, p)
			}
		}
		if p, most := largest(mine); most >= int64(len(ballast)) {
			t.Fatalf("process %d: got %d MB, want the memory of /bin/true", p.pid, most>>20)
		}
	}
	runtime.KeepAlive(ballast)
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
