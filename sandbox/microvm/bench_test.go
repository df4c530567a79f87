package microvm

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// Run with: go test -run '^$' -bench . ./sandbox/microvm
//
// Machines are emulated here, as in the tests.

// command runs a program in the sandbox to its end.
func command(b *testing.B, c *guest.Client, path string, args ...string) {
	b.Helper()
	p, err := c.Start(b.Context(), guest.ProcessRequest{Cmd: path, Args: args})
	if err != nil {
		b.Fatal(err)
	}
	for ev, err := range p.Events() {
		if err != nil {
			b.Fatal(err)
		}
		if ev.Ended && ev.ExitCode != 0 {
			b.Fatalf("%s: got exit code %d", path, ev.ExitCode)
		}
	}
}

// report reports the 50th and the 99th percentile of took.
func report(b *testing.B, what string, took []time.Duration) {
	slices.Sort(took)
	at := func(p int) float64 { return float64(took[(len(took)-1)*p/100].Microseconds()) / 1000 }
	b.ReportMetric(at(50), what+"-p50-ms")
	b.ReportMetric(at(99), what+"-p99-ms")
}

// BenchmarkCold measures from the Create of a sandbox to the end of its first command, the CPU
// time of that, and its Destroy.
func BenchmarkCold(b *testing.B) {
	d, rootfs := openTest(b, drivertest.StateDir(b)), drivertest.Rootfs(b)
	var cold, cpu, destroy []time.Duration
	for n := 0; b.Loop(); n++ {
		id, began := fmt.Sprintf("cold-%d", n), time.Now()
		box := drivertest.Start(b, d, sandbox.Spec{ID: id, Template: sandbox.Template{Path: rootfs}})
		command(b, box.Client, "/bin/true")
		cold = append(cold, time.Since(began))
		cpu = append(cpu, box.Stats().CPU)

		began = time.Now()
		if err := d.Destroy(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		destroy = append(destroy, time.Since(began))
	}
	report(b, "cold", cold)
	report(b, "cold-cpu", cpu)
	report(b, "destroy", destroy)
}

// BenchmarkExec measures commands in a running sandbox.
func BenchmarkExec(b *testing.B) {
	d := openTest(b, drivertest.StateDir(b))
	box := drivertest.Start(b, d, sandbox.Spec{ID: "exec", Template: drivertest.Template(b)})
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"ping", nil},
		{"true", []string{"/bin/true"}},
		{"sh-c-true", []string{"/bin/sh", "-c", "true"}},
		{"python3", []string{"/usr/bin/python3", "-c", "print(1)"}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if tt.args == nil {
					if err := box.Client.Ping(b.Context()); err != nil {
						b.Fatal(err)
					}
				} else {
					command(b, box.Client, tt.args[0], tt.args[1:]...)
				}
				took = append(took, time.Since(began))
			}
			report(b, "exec", took)
		})
	}
}

// BenchmarkPause measures a pause and the first command afterwards.
func BenchmarkPause(b *testing.B) {
	d := openTest(b, drivertest.StateDir(b))
	box := drivertest.Start(b, d, sandbox.Spec{ID: "pause", Template: drivertest.Template(b)})
	var pause, resume []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := d.Pause(b.Context(), box.ID); err != nil {
			b.Fatal(err)
		}
		pause = append(pause, time.Since(began))
		began = time.Now()
		if err := d.Resume(b.Context(), box.ID); err != nil {
			b.Fatal(err)
		}
		resume = append(resume, time.Since(began))
	}
	report(b, "pause", pause)
	report(b, "resume", resume)
}

// BenchmarkIdleMemory measures the memory of an idle sandbox. Pages that several QEMU processes
// share count in proportion.
func BenchmarkIdleMemory(b *testing.B) {
	d := openTest(b, drivertest.StateDir(b))
	command(b, drivertest.Start(b, d, sandbox.Spec{ID: "idle", Template: drivertest.Template(b)}).Client, "/bin/true")
	s, err := d.base.Find("idle")
	if err != nil {
		b.Fatal(err)
	}
	pid, _, _ := s.qemu()
	var pss int64
	for b.Loop() {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
				pss, _ = strconv.ParseInt(f[1], 10, 64)
			}
		}
	}
	b.ReportMetric(float64(pss)/(1<<10), "PSS-MiB/sandbox")
	b.ReportMetric(float64(s.cgroup.Usage().Memory)/(1<<20), "cgroup-MiB/sandbox")
}
