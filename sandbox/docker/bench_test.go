package docker

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/internal/dockertest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// Run with: go test -run '^$' -bench . ./sandbox/docker

// median returns the median of durations in milliseconds.
func median(took []time.Duration) float64 {
	slices.Sort(took)
	return float64(took[len(took)/2].Microseconds()) / 1000
}

// BenchmarkCold measures the steps from a template to the end of the first command.
func BenchmarkCold(b *testing.B) {
	d := openTest(b, drivertest.StateDir(b), Options{Host: dockertest.Host(b)})
	rootfs := drivertest.Rootfs(b)
	drivertest.Start(b, d, sandbox.Spec{ID: "first", Template: sandbox.Template{Path: rootfs}}) // imports the template
	steps := map[string][]time.Duration{}
	n := 0
	for b.Loop() {
		n++
		id := fmt.Sprintf("cold-%d", n)
		began := time.Now()
		lap := func(step string, since time.Time) time.Time {
			now := time.Now()
			steps[step] = append(steps[step], now.Sub(since))
			return now
		}
		if err := d.Create(b.Context(), sandbox.Spec{ID: id, Template: sandbox.Template{Path: rootfs}}); err != nil {
			b.Fatal(err)
		}
		at := lap("create", began)
		if err := d.Start(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		at = lap("start", at)
		box := drivertest.Attach(b, d, id)
		if err := box.Client.Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
		at = lap("dial", at)
		box.Must("true")
		at = lap("exec", at)
		lap("all", began)
		if err := d.Destroy(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		lap("destroy", at)
	}
	for step, took := range steps {
		b.ReportMetric(median(took), step+"-p50-ms")
	}
}

// BenchmarkGuest measures the throughput of one connection.
func BenchmarkGuest(b *testing.B) {
	d := openTest(b, drivertest.StateDir(b), Options{Host: dockertest.Host(b)})
	box := drivertest.Start(b, d, sandbox.Spec{ID: "bench", Template: drivertest.Template(b)})
	box.Must("true")
	b.Run("Ping", func(b *testing.B) {
		for b.Loop() {
			if err := box.Client.Ping(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("True", func(b *testing.B) {
		for b.Loop() {
			box.Must("true")
		}
	})
	const size = 64 << 20
	b.Run("Write", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if err := box.Client.WriteFile(b.Context(), "/mnt/data", "file", "",
				strings.NewReader(strings.Repeat("x", size))); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Read", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			r, _, err := box.Client.ReadFile(b.Context(), "/mnt/data", "file", "")
			if err != nil {
				b.Fatal(err)
			}
			n, err := io.Copy(io.Discard, r)
			r.Close()
			if n != size || err != nil {
				b.Fatalf("got %d bytes, %v", n, err)
			}
		}
	})
}

// BenchmarkEgress measures the network.
func BenchmarkEgress(b *testing.B) {
	drivertest.BenchmarkEgress(b, openTest(b, drivertest.StateDir(b), Options{Host: dockertest.Host(b)}),
		drivertest.Rootfs(b))
}
