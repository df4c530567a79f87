package container_test

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob/blobtest"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
	"github.com/berth-run/berth/sandbox/gvisor"
	"github.com/berth-run/berth/store/sqlite"
)

// Run with: go test -run '^$' -bench . ./container

var byBench = berth.Caller{Project: "proj_bench"}

// newGVisorService returns a service with gVisor sandboxes on the suite's template.
func newGVisorService(tb testing.TB, pool int) *container.Service {
	tb.Helper()
	k, _ := newGVisorServices(tb, pool)
	return k
}

// newGVisorServices also returns the store of the service's snapshots.
func newGVisorServices(tb testing.TB, pool int) (*container.Service, *snapshot.Service) {
	tb.Helper()
	return newGVisorServicesOn(tb, drivertest.Rootfs(tb), pools(container.PoolOptions{Size: pool}))
}

func pools(p ...container.PoolOptions) func(*container.Options) {
	return func(o *container.Options) { o.Pools = p }
}

func newGVisorServicesOn(tb testing.TB, rootfs string, options ...func(*container.Options)) (*container.Service,
	*snapshot.Service) {
	tb.Helper()
	state := drivertest.StateDir(tb)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	d, err := gvisor.Open(gvisor.Options{StateDir: filepath.Join(state, "gvisor"), RunscPath: drivertest.Runsc(tb),
		GuestPath: drivertest.Guest(tb), Logger: log})
	if err != nil {
		tb.Fatal(err)
	}
	db, err := sqlite.Open(tb.Context(), filepath.Join(state, "berth.db"), nil)
	if err != nil {
		tb.Fatal(err)
	}
	kept := snapshot.New(snapshot.Options{Objects: db, Contents: blobtest.New(tb), Seal: seal.New([32]byte{1})})
	opts := container.Options{Snapshots: kept, Store: db, Driver: d, OpenFile: files.New(files.Options{Store: db}).Open,
		Log: log, Seal: seal.New([32]byte{1}),
		Template: func(ref string) (container.Template, error) {
			return container.Template{Template: sandbox.Template{Digest: cmp.Or(ref, "sha256:bench"),
				Path: rootfs}}, nil
		}}
	for _, o := range options {
		o(&opts)
	}
	k, err := container.New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	if err := k.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		k.Close()
		db.Close()
	})
	return k, kept
}

// BenchmarkCreate measures from the request for a container to the end of its first command,
// cold and from a full pool.
func BenchmarkCreate(b *testing.B) {
	for _, pool := range []int{0, 2} {
		b.Run(fmt.Sprintf("pool=%d", pool), func(b *testing.B) {
			k := newGVisorService(b, pool)
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				for pool > 0 && k.Pools()[0].Ready < pool {
					time.Sleep(time.Millisecond)
				}
				b.StartTimer()
				began := time.Now()
				c, err := k.Create(b.Context(), byBench, container.CreateRequest{})
				if err != nil {
					b.Fatal(err)
				}
				call := guest.ShellCall{CallID: "first", Commands: []string{"true"}}
				for ev, err := range k.Access().Shell(byBench, c.ID).Shell(b.Context(), call) {
					if err != nil || ev.Kind == guest.ShellExit && ev.ExitCode != 0 {
						b.Fatal(ev, err)
					}
				}
				took = append(took, time.Since(began))
				b.StopTimer()
				if err := k.Delete(b.Context(), byBench.Project, c.ID); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			slices.Sort(took)
			at := func(p int) float64 { return float64(took[(len(took)-1)*p/100].Microseconds()) / 1000 }
			b.ReportMetric(at(50), "p50-ms")
			b.ReportMetric(at(99), "p99-ms")
			if pool > 0 && k.Pools()[0].Misses > 0 {
				b.Errorf("the pool missed %d times", k.Pools()[0].Misses)
			}
		})
	}
}
