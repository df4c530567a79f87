package gvisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/layer"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// Run with: go test -run '^$' -bench . ./sandbox/gvisor

// reportMS reports the 50th and the 99th percentile of took.
func reportMS(b *testing.B, what string, took []time.Duration) {
	slices.Sort(took)
	at := func(p int) float64 { return float64(took[(len(took)-1)*p/100].Microseconds()) / 1000 }
	b.ReportMetric(at(50), what+"-p50-ms")
	b.ReportMetric(at(99), what+"-p99-ms")
}

// run runs a program in the sandbox to its end.
func run(b *testing.B, c *guest.Client, path string, args ...string) {
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

// BenchmarkCold measures from the Create of a sandbox to the end of its first command, and its
// Destroy.
func BenchmarkCold(b *testing.B) {
	d := openTest(b, drivertest.StateDir(b))
	rootfs := drivertest.Rootfs(b)
	var cold, destroy []time.Duration
	var cpu time.Duration
	for n := 0; b.Loop(); n++ {
		id, began := fmt.Sprintf("cold-%d", n), time.Now()
		if err := d.Create(b.Context(), sandbox.Spec{ID: id, Template: sandbox.Template{Path: rootfs}}); err != nil {
			b.Fatal(err)
		}
		if err := d.Start(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		box := drivertest.Attach(b, d, id)
		run(b, box.Client, "/bin/true")
		cold = append(cold, time.Since(began))
		cpu += usedCPU(b, d, id)

		began = time.Now()
		if err := d.Destroy(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		destroy = append(destroy, time.Since(began))
	}
	reportMS(b, "cold", cold)
	b.ReportMetric(cpu.Seconds()*1000/float64(len(cold)), "cpu-ms")
	reportMS(b, "destroy", destroy)
}

// BenchmarkExec measures commands in a running sandbox, with the CPU time that each uses there,
// and for comparison the same command as a process of the host.
func BenchmarkExec(b *testing.B) {
	d := openTest(b, drivertest.StateDir(b))
	box := drivertest.Start(b, d, sandbox.Spec{ID: "exec", Template: drivertest.Template(b)})
	measure := func(name string, f func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			before := usedCPU(b, d, "exec")
			for b.Loop() {
				began := time.Now()
				f(b)
				took = append(took, time.Since(began))
			}
			reportMS(b, "exec", took)
			b.ReportMetric((usedCPU(b, d, "exec")-before).Seconds()*1000/float64(b.N), "cpu-ms")
		})
	}
	measure("true", func(b *testing.B) { run(b, box.Client, "/bin/true") })
	measure("sh-c-true", func(b *testing.B) { run(b, box.Client, "/bin/sh", "-c", "true") })
	measure("shell-call-true", func(b *testing.B) { box.Must("true") })
	box.Must("cd /mnt/data && seq 1 1000 | xargs touch")
	measure("shell-call-true-1000-files", func(b *testing.B) { box.Must("true") })
	box.Must(`python3 -c '
import os
for i in range(2000):
    os.mkdir("d%d" % i)
    for n in range(10): open("d%d/%d" % (i, n), "w").write("hello")'
tar cf /tmp/tree.tar d*`)
	measure("shell-call-true-21000-files", func(b *testing.B) { box.Must("true") })
	measure("untar-20000-files", func(b *testing.B) { box.Must("rm -rf new; mkdir new; tar xf /tmp/tree.tar -C new") })
	measure("untar-20000-files-over", func(b *testing.B) { box.Must("tar xf /tmp/tree.tar") })
	measure("python3", func(b *testing.B) { run(b, box.Client, "/usr/bin/python3", "-c", "print(1)") })
	measure("host-true", func(b *testing.B) {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkRunscRun measures ordinary use of runsc: `runsc run` of true on the same template,
// with its defaults.
func BenchmarkRunscRun(b *testing.B) {
	dir, runsc := b.TempDir(), drivertest.Runsc(b)
	raw, err := json.Marshal(specs.Spec{
		Version: "1.1.0",
		Process: &specs.Process{Args: []string{"/bin/true"}, Cwd: "/"},
		Root:    &specs.Root{Path: drivertest.Rootfs(b)},
		Linux:   &specs.Linux{},
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o600); err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for n := 0; b.Loop(); n++ {
		cmd := exec.Command(runsc, "--root="+filepath.Join(dir, "root"), "--network=none",
			"--ignore-cgroups", "--overlay2=root:memory", "run", "--bundle="+dir, fmt.Sprintf("c%d", n))
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		took = append(took, time.Since(began))
	}
	reportMS(b, "run", took)
}

// BenchmarkIdleMemory measures the memory of idle sandboxes. Shared pages count in proportion.
func BenchmarkIdleMemory(b *testing.B) {
	const sandboxes = 8
	d := openTest(b, drivertest.StateDir(b))
	rootfs := drivertest.Rootfs(b)
	var all []instance
	for n := range sandboxes {
		id := fmt.Sprintf("idle-%d", n)
		run(b, drivertest.Start(b, d, sandbox.Spec{ID: id, Template: sandbox.Template{Path: rootfs}}).Client,
			"/bin/true")
		s, err := d.base.Find(id)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, s)
	}
	var total, charged int64
	for b.Loop() {
		total, charged = 0, 0
		for _, s := range all {
			pids, err := s.wall.(*group).cgroup.Procs()
			if err != nil {
				b.Fatal(err)
			}
			for _, pid := range pids {
				total += pss(pid)
			}
			charged += s.Usage().Memory
		}
	}
	b.ReportMetric(float64(total)/sandboxes/(1<<20), "PSS-MiB/sandbox")
	b.ReportMetric(float64(charged)/sandboxes/(1<<20), "cgroup-MiB/sandbox")
}

// BenchmarkIdleCPU measures the CPU time of an idle sandbox.
func BenchmarkIdleCPU(b *testing.B) {
	d := openTest(b, drivertest.StateDir(b))
	run(b, drivertest.Start(b, d, sandbox.Spec{ID: "idle", Template: drivertest.Template(b)}).Client, "/bin/true")
	before, began := usedCPU(b, d, "idle"), time.Now()
	for b.Loop() {
		time.Sleep(5 * time.Second)
	}
	b.ReportMetric((usedCPU(b, d, "idle")-before).Seconds()/time.Since(began).Seconds()*100, "%-of-a-core")
}

// pss returns a process's proportional set size in bytes.
func pss(pid int) int64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// BenchmarkFiles measures writing and reading a large file.
func BenchmarkFiles(b *testing.B) {
	const size = 200 << 20
	d := openTest(b, drivertest.StateDir(b))
	box := drivertest.Start(b, d, sandbox.Spec{ID: "files", Template: drivertest.Template(b)})
	b.Run("in", func(b *testing.B) {
		b.SetBytes(size)
		defer reportCPU(b, d, "files", size)()
		for b.Loop() {
			if err := box.Client.WriteFile(b.Context(), "/mnt/data", "large", "", io.LimitReader(zeros{},
				size)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("out", func(b *testing.B) {
		b.SetBytes(size)
		defer reportCPU(b, d, "files", size)()
		for b.Loop() {
			body, _, err := box.Client.ReadFile(b.Context(), "/mnt/data", "large", "")
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, body); n != size || err != nil {
				b.Fatalf("got %d bytes, %v, want %d", n, err, size)
			}
			body.Close()
		}
	})
}

// reportCPU reports after the benchmark the CPU time per GB, in the sandbox and here. Unlike
// throughput it is the same on a busy machine.
func reportCPU(b *testing.B, d *Driver, id string, size int64) func() {
	used := func() (inside, here time.Duration) {
		var own unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
			b.Fatal(err)
		}
		return usedCPU(b, d, id), time.Duration(own.Utime.Nano() + own.Stime.Nano())
	}
	inside, here := used()
	return func() {
		insideNow, hereNow := used()
		perGB := 1e9 / float64(size) / float64(b.N)
		b.ReportMetric((insideNow-inside).Seconds()*perGB, "sandbox-s/GB")
		b.ReportMetric((hereNow-here).Seconds()*perGB, "server-s/GB")
	}
}

// usedCPU returns the CPU time that a sandbox has used.
func usedCPU(b *testing.B, d *Driver, id string) time.Duration {
	b.Helper()
	stats, err := d.Stats(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	return stats.CPU
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// BenchmarkEgress measures the network.
func BenchmarkEgress(b *testing.B) {
	drivertest.BenchmarkEgress(b, openTest(b, drivertest.StateDir(b)), drivertest.Rootfs(b))
}

// BenchmarkCopy measures how the files of a sandbox are copied into others: read, applied, and
// both at the same time.
func BenchmarkCopy(b *testing.B) {
	const size = 100 << 20
	d := openTest(b, drivertest.StateDir(b))
	from := drivertest.Start(b, d, sandbox.Spec{ID: "from", Template: drivertest.Template(b)})
	run(b, from.Client, "/bin/sh", "-c", fmt.Sprintf("head -c %d /dev/urandom >/mnt/data/large", size))
	archive := func(b *testing.B) io.ReadCloser {
		in, err := from.Client.Archive(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		return in
	}
	to := func(b *testing.B, n int, in func(b *testing.B) io.Reader) {
		b.StopTimer()
		id := fmt.Sprintf("to-%d", n)
		box := drivertest.Start(b, d, sandbox.Spec{ID: id, Template: drivertest.Template(b)})
		before := usedCPU(b, d, id)
		b.StartTimer()
		if err := box.Client.ApplyArchive(b.Context(), in(b)); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		b.ReportMetric(float64((usedCPU(b, d, id) - before).Milliseconds()), "to-ms")
		if err := d.Destroy(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.Run("read", func(b *testing.B) {
		b.SetBytes(size)
		defer reportCPU(b, d, "from", size)()
		for b.Loop() {
			in := archive(b)
			if n, err := io.Copy(io.Discard, in); n < size || err != nil {
				b.Fatalf("got %d bytes, %v", n, err)
			}
			in.Close()
		}
	})
	var made bytes.Buffer
	in := archive(b)
	if _, err := layer.Make(&made, in, drivertest.Rootfs(b), layer.Limits{}); err != nil {
		b.Fatal(err)
	}
	in.Close()
	b.Run("apply", func(b *testing.B) {
		b.SetBytes(size)
		for n := 0; b.Loop(); n++ {
			to(b, n, func(*testing.B) io.Reader { return bytes.NewReader(made.Bytes()) })
		}
	})
	b.Run("both", func(b *testing.B) {
		b.SetBytes(size)
		defer reportCPU(b, d, "from", size)()
		for n := 0; b.Loop(); n++ {
			to(b, n, func(b *testing.B) io.Reader {
				in := archive(b)
				r, w := io.Pipe()
				go func() {
					_, err := layer.Make(w, in, drivertest.Rootfs(b), layer.Limits{})
					in.Close()
					w.CloseWithError(err)
				}()
				return r
			})
		}
	})
}

// BenchmarkLarge measures large downloads and uploads through the network.
func BenchmarkLarge(b *testing.B) {
	d := openTest(b, drivertest.StateDir(b))
	drivertest.BenchmarkLarge(b, d, drivertest.Rootfs(b), func(b *testing.B, id string, size int64) func() {
		return reportCPU(b, d, id, size)
	})
}
