package docker

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/dockertest"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
	"github.com/berth-run/berth/store/sqlite"
)

var byTest = berth.Caller{Project: "proj_test"}

// newService returns a container service with this driver, and a function that ends it.
func newService(tb testing.TB, state string, pool int) (k *container.Service, end func()) {
	tb.Helper()
	rootfs := drivertest.Rootfs(tb)
	d := openTest(tb, filepath.Join(state, "docker"), Options{Host: dockertest.Host(tb)})
	db, err := sqlite.Open(tb.Context(), filepath.Join(state, "berth.db"), nil)
	if err != nil {
		tb.Fatal(err)
	}
	k, err = container.New(container.Options{Store: db, Driver: d, OpenFile: files.New(files.Options{Store: db}).Open,
		Pools: []container.PoolOptions{{Size: pool}}, Seal: seal.New([32]byte{1}),
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Template: func(string) (container.Template, error) {
			return container.Template{Template: sandbox.Template{Digest: "sha256:test", Path: rootfs}}, nil
		}})
	if err != nil {
		tb.Fatal(err)
	}
	if err := k.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		k.Close()
		db.Close()
	})
	tb.Cleanup(end)
	return k, end
}

// shell runs a command in a container and returns its output.
func shell(tb testing.TB, k *container.Service, id berth.ContainerID, script string) string {
	tb.Helper()
	call := guest.ShellCall{CallID: fmt.Sprintf("call_%d", time.Now().UnixNano()), Commands: []string{script},
		Timeout: time.Minute}
	out := ""
	for ev, err := range k.Access().Shell(byTest, id).Shell(tb.Context(), call) {
		if err != nil || ev.Kind == guest.ShellExit && ev.ExitCode != 0 {
			tb.Errorf("%s: got %+v, %v", script, ev, err)
			return ""
		}
		out += string(ev.Data)
	}
	return out
}

// TestContainers runs a container from its request to its end, with a restart of the server.
func TestContainers(t *testing.T) {
	state := drivertest.StateDir(t)
	k, end := newService(t, state, 0)
	c, err := k.Create(t.Context(), byTest, container.CreateRequest{Name: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if got := shell(t, k, c.ID,
		"cd /tmp; export COLOR=blue; echo kept >/mnt/data/file; (while :; do date >>/tmp/log; sleep 0.01; done) >/dev/null 2>&1 & echo done"); got != "done\n" {
		t.Errorf("got %q", got)
	}
	if got, err := k.Get(t.Context(), byTest.Project, c.ID); err != nil || got.Berth.Isolation != "docker" {
		t.Errorf("got %+v, %v, want isolation docker", got.Berth, err)
	}
	end()

	k, end = newService(t, state, 0)
	if got := shell(t, k, c.ID,
		"echo $PWD $COLOR $(cat /mnt/data/file); n=$(wc -l <log); while [ $(wc -l <log) -eq $n ]; do :; done"); got != "/tmp blue kept\n" {
		t.Errorf("after a restart: got %q", got)
	}
	if err := k.Delete(t.Context(), byTest.Project, c.ID); err != nil {
		t.Error(err)
	}
	end()
	if left := leftovers(t, dockertest.Host(t), filepath.Join(state, "docker")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestTwentyAtOnce(t *testing.T) {
	k, _ := newService(t, drivertest.StateDir(t), 0)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			c, err := k.Create(t.Context(), byTest, container.CreateRequest{})
			if err != nil {
				t.Error(err)
				return
			}
			want := fmt.Sprintf("%d\n", i)
			if got := shell(t, k, c.ID, fmt.Sprintf("echo %d >file; sleep 0.1; cat file", i)); got != want {
				t.Errorf("container %d: got %q, want %q", i, got, want)
			}
			if err := k.Delete(t.Context(), byTest.Project, c.ID); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// BenchmarkCreate measures from the request for a container to the end of its first command,
// cold and from a full pool.
func BenchmarkCreate(b *testing.B) {
	for _, pool := range []int{0, 2} {
		b.Run(fmt.Sprintf("pool=%d", pool), func(b *testing.B) {
			k, _ := newService(b, drivertest.StateDir(b), pool)
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				for pool > 0 && k.Pools()[0].Ready < pool {
					time.Sleep(time.Millisecond)
				}
				b.StartTimer()
				began := time.Now()
				c, err := k.Create(b.Context(), byTest, container.CreateRequest{})
				if err != nil {
					b.Fatal(err)
				}
				shell(b, k, c.ID, "true")
				took = append(took, time.Since(began))
				b.StopTimer()
				if err := k.Delete(b.Context(), byTest.Project, c.ID); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(median(took), "p50-ms")
		})
	}
}
