package drivertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/sandbox"
)

// limits exceeds each limit that the driver enforces.
type limits struct{ *suite }

func (s limits) all(t *testing.T) {
	for _, l := range []struct {
		name     string
		enforced bool
		test     func(*testing.T)
	}{
		{"MemoryHogIsRefused", s.features.MemoryLimit, s.memoryHog},
		{"ManyHogs", s.features.MemoryLimit, s.manyHogs},
		{"MemoryWall", s.features.MemoryLimit, s.memoryWall},
		{"ShownLimits", s.features.MemoryLimit && s.features.LimitsShown, s.shownLimits},
		{"CPU", s.features.CPULimit, s.cpuHog},
		{"ForkBomb", s.features.PIDLimit, s.forkBomb},
		{"DiskFill", s.features.DiskLimit, s.diskFill},
		{"DiskIsNotMemory", s.features.DiskLimit && s.features.MemoryLimit, s.diskIsNotMemory},
	} {
		if l.enforced {
			s.run(t, l.name, l.test)
		}
	}
}

// memoryHog checks that a process that exceeds the memory fails without affecting others.
func (s limits) memoryHog(t *testing.T) {
	b := Start(t, s.open(t), sandbox.Spec{ID: "hog", Template: s.Template, Limits: sandbox.Limits{Memory: 256 << 20}})
	r := b.ShTimeout(`python3 -c '
hog = []
try:
    while True: hog.append(bytearray(8 << 20))
except MemoryError:
    print("refused")
'`, time.Minute)
	if refused := r.Stdout == "refused\n" && r.Code == 0; !refused && r.Code != killedCode {
		t.Errorf("a process that exceeds the memory: got %+v, want MemoryError or a killed command", r)
	}
	b.Answers()
	if st := b.Stats(); st.State != sandbox.StateRunning || st.Memory > s.most(256<<20) {
		t.Errorf("afterwards: got %+v, want it running within 256 MiB", st)
	}
}

// killedCode is the exit code that a shell returns for a process that SIGKILL has ended.
const killedCode = 128 + 9

// most returns the maximal host memory of a sandbox with that limit.
func (s limits) most(limit int64) int64 {
	if s.features.OwnKernel {
		return limit + 256<<20
	}
	return limit
}

// holdMemory starts eight processes of 60 MB. Each of them keeps its memory until one of them has ended without it or
// all have it. It prints how many have had it.
const holdMemory = `cd /tmp
hold() {
	python3 -c 'import os, sys, time
held = bytearray(b"x") * (60 << 20)
open("held." + sys.argv[1], "w").close()
while not os.path.exists("over"): time.sleep(0.05)' $1 || touch over
}
for i in 1 2 3 4 5 6 7 8; do hold $i & done
until [ -e over ] || [ -e held.1 -a -e held.2 -a -e held.3 -a -e held.4 -a -e held.5 -a -e held.6 -a -e held.7 -a -e held.8 ]; do sleep 0.05; done
touch over
wait
echo held.* | wc -w`

// manyHogs runs small processes that together exceed the memory: not all of them may have it at the same time.
func (s limits) manyHogs(t *testing.T) {
	const limit = 256 << 20
	b := Start(t, s.open(t), sandbox.Spec{ID: "hogs", Template: s.Template, Limits: sandbox.Limits{Memory: limit}})
	r := b.ShTimeout(holdMemory, b.patience*2*time.Minute)
	if r.Timeout || strings.TrimSpace(r.Stdout) == "8" {
		t.Errorf("eight processes of 60 MB got %+v, want less than 8 of them to have it", r)
	}
	b.survivesOr(sandbox.ReasonOOM)
}

// fillMemory fills file systems in memory, and prints when all are full.
const fillMemory = `sudo sh -c 'for f in /dev/fill /dev/shm/fill; do while dd if=/dev/zero bs=1M count=64 status=none; do :; done >>$f; done; echo full'`

// memoryWall uses memory that belongs to no process, so that only the driver's limit can bound
// it. The sandbox may die, with the reason oom, or the file systems are full before.
func (s limits) memoryWall(t *testing.T) {
	const limit = 256 << 20
	b := Start(t, s.open(t), sandbox.Spec{ID: "wall", Template: s.Template, Limits: sandbox.Limits{Memory: limit}})
	full := false
	st := b.Await("the wall", func(st sandbox.Stats) bool {
		if st.State == sandbox.StateDead || full {
			return true
		}
		// It is repeated because the guest may end the command earlier.
		full = strings.Contains(b.Last(s.asRoot(fillMemory)), "full")
		return false
	})
	switch {
	case st.State == sandbox.StateDead && st.Reason != sandbox.ReasonOOM:
		t.Errorf("got %+v, want reason %q", st, sandbox.ReasonOOM)
	case st.State != sandbox.StateDead:
		b.Answers()
		if st.Memory > s.most(limit) {
			t.Errorf("got %+v, want at most %d bytes", st, limit)
		}
	}
}

// survivesOr checks that the sandbox answers, or is dead with that reason.
func (b *Box) survivesOr(reason sandbox.Reason) {
	b.tb.Helper()
	switch st := b.Stats(); {
	case st.State == sandbox.StateRunning:
		b.Answers()
	case st.State != sandbox.StateDead || st.Reason != reason:
		b.tb.Errorf("got %+v, want running, or dead with reason %q", st, reason)
	}
}

func (s limits) shownLimits(t *testing.T) {
	b := Start(t, s.open(t), sandbox.Spec{ID: "shown", Template: s.Template,
		Limits: sandbox.Limits{Memory: 512 << 20, CPU: 2}})
	if got := b.Must("awk '/^MemTotal/{print $2}' /proc/meminfo"); got != "524288" {
		t.Errorf("MemTotal: got %s kB, want 524288", got)
	}
}

func (s limits) cpuHog(t *testing.T) {
	const cores = 0.5
	b := Start(t, s.open(t), sandbox.Spec{ID: "cpu", Template: s.Template, Limits: sandbox.Limits{CPU: cores}})
	before, began := b.Stats().CPU, time.Now()
	b.ShTimeout("for i in 1 2 3 4; do (while :; do :; done) & done; wait", 2*time.Second)
	used, took := b.Stats().CPU-before, time.Since(began)
	// It may use one period more than its share, and must use a tenth, also on a busy machine.
	if limit := time.Duration(cores*float64(took)) + 200*time.Millisecond; used > limit {
		t.Errorf("in %v: got %v of CPU, want at most %v", took, used, limit)
	}
	// several sandboxes may wait for each other
	if used < time.Duration(cores*float64(took)/10) && s.features.Slowness <= 1 {
		t.Errorf("in %v: got only %v of CPU", took, used)
	}
	b.Answers()
}

func (s limits) forkBomb(t *testing.T) {
	const pids = 64
	for _, tt := range []struct{ name, script string }{
		{"Shell", "bomb() { bomb | bomb & }; bomb; sleep 600"},
		{"Root", "sudo bash -c 'bomb() { bomb | bomb & }; bomb; sleep 600'"},
		{"Sleepers", "while :; do sleep 600 & done"},
		{"Threads", `python3 -c '
import _thread, time
try:
    while True: _thread.start_new_thread(time.sleep, (600,))
except Exception as e: print(e)
time.sleep(600)'`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := Start(t, s.open(t), sandbox.Spec{ID: "bomb", Template: s.Template, Limits: sandbox.Limits{PIDs: pids}})
			most, done := 0, make(chan struct{})
			go func() {
				defer close(done)
				b.ShTimeout(tt.script, 3*time.Second)
			}()
			for running := true; running; {
				select {
				case <-done:
					running = false
				default:
					most = max(most, b.Stats().PIDs)
				}
			}
			// Some of the host's belong to the driver, and a process may be several.
			if most < pids/4 && !s.features.OwnKernel || most > 300+20*pids {
				t.Errorf("host processes and threads: got up to %d, want about %d", most, pids)
			}
			b.Answers()
		})
	}
}

func (s limits) diskFill(t *testing.T) {
	const disk = 64 << 20
	b := Start(t, s.open(t), sandbox.Spec{ID: "fill", Template: s.Template, Limits: sandbox.Limits{Disk: disk}})
	for _, path := range []string{"/mnt/data/fill", "/tmp/fill", "/var/tmp/fill", "/home/user/fill"} {
		r := b.Sh("dd if=/dev/zero of=" + path + " bs=1M count=1024")
		if r.Code == 0 || !strings.Contains(r.Stderr, "No space left") {
			t.Errorf("%s: got %+v, want no space left", path, r)
		}
		if got := b.Stats().Disk; got < disk/2 || got > disk+disk/4 {
			t.Errorf("%s: got %d bytes on disk, want about %d", path, got, disk)
		}
		// On a full disk a call still has the state of the one before,
		if r := b.Sh("cd /usr && export FULL=" + path); r.Code != 0 || r.Stderr != "" {
			t.Errorf("a call with the disk full: got %+v", r)
		}
		if r := b.Sh(`echo "$PWD $FULL"; cd /mnt/data`); r.Stdout != "/usr "+path+"\n" || r.Stderr != "" {
			t.Errorf("the call after it: got %+v", r)
		}
		// and removed files are freed.
		b.Must("rm " + path)
		b.Await("the disk to be freed", func(st sandbox.Stats) bool { return st.Disk < disk/2 })
	}
	// A sparse file uses no space.
	b.Must("truncate -s 1G /tmp/sparse && rm /tmp/sparse")
	if r := b.Sh("dd if=/dev/zero of=/dev/shm/fill bs=1M count=4096"); r.Code == 0 {
		t.Errorf("/dev/shm: got %+v, want no space left", r)
	}
	b.Answers()
}

// diskIsNotMemory writes more to disk than the memory limit.
func (s limits) diskIsNotMemory(t *testing.T) {
	b := Start(t, s.open(t), sandbox.Spec{ID: "cache", Template: s.Template,
		Limits: sandbox.Limits{Memory: 192 << 20, Disk: 1 << 30}})
	const size = 600
	sum := b.Must(fmt.Sprintf("dd if=/dev/zero of=big bs=1M count=%d status=none && wc -c <big", size))
	if want := fmt.Sprint(size << 20); sum != want {
		t.Errorf("got %s bytes, want %s", sum, want)
	}
	// A separate kernel may write later.
	st := b.Await("the disk", func(st sandbox.Stats) bool {
		return st.State != sandbox.StateRunning || st.Disk >= size<<20
	})
	if st.State != sandbox.StateRunning {
		t.Errorf("got %+v, want it running with %d MiB on disk", st, size)
	}
}
