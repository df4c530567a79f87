package container_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// Pools with real sandboxes of two memory limits and two templates serve matching requests. A
// program in the sandbox sees the container's limit.
func TestPoolsOnGVisor(t *testing.T) {
	k, _ := newGVisorServicesOn(t, drivertest.Rootfs(t), pools(container.PoolOptions{Size: 1},
		container.PoolOptions{MemoryLimit: "4g", Size: 1}, container.PoolOptions{Template: "sha256:other", Size: 1}))
	full := func() {
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			ready := 0
			for _, p := range k.Pools() {
				ready += p.Ready
			}
			if ready == 3 {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("got %+v", k.Pools())
			}
		}
	}
	full()
	for i, req := range []container.CreateRequest{{}, {MemoryLimit: "4g"},
		{Source: berth.ContainerSource{Template: "sha256:other"}}} {
		c, err := k.Create(t.Context(), byBench, req)
		if err != nil {
			t.Fatal(err)
		}
		var memory strings.Builder
		for ev, err := range k.Access().Shell(byBench, c.ID).Shell(t.Context(), guest.ShellCall{CallID: "first",
			Commands: []string{"awk '/^MemTotal/{print $2}' /proc/meminfo"}}) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Kind == guest.ShellStdout {
				memory.Write(ev.Data)
			}
		}
		want := map[string]string{"1g": "1048576", "4g": "4194304"}[c.MemoryLimit]
		if got := strings.TrimSpace(memory.String()); got != want {
			t.Errorf("%d: a container of %s has %s kB, want %s", i, c.MemoryLimit, got, want)
		}
		if p := k.Pools()[i]; p.Hits != 1 || p.Misses != 0 {
			t.Errorf("%d: got %+v", i, p)
		}
		if err := k.Delete(t.Context(), byBench.Project, c.ID); err != nil {
			t.Fatal(err)
		}
	}
	full()
}
