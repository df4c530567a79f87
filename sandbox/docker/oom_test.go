package docker

import (
	"testing"

	"github.com/berth-run/berth/internal/dockertest"
	"github.com/berth-run/berth/sandbox/driver"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestOutOfMemory fills memory that belongs to no process, in a sandbox so small that
// there is room for it. The kernel ends what it can, at last the guest.
func TestOutOfMemory(t *testing.T) {
	d := openTest(t, drivertest.StateDir(t), Options{Host: dockertest.Host(t)})
	b := drivertest.Start(t, d, driver.Spec{ID: "oom", Rootfs: drivertest.Rootfs(t), Limits: driver.Limits{Memory: 96 << 20}})
	st := b.Await("the end", func(st driver.Stats) bool {
		if st.State != driver.StateDead {
			b.Last("sudo sh -c 'for f in /dev/fill /dev/shm/fill; do dd if=/dev/zero of=$f bs=1M status=none; done'")
		}
		return st.State == driver.StateDead
	})
	if st.Reason != driver.ReasonOOM {
		t.Errorf("got %+v, want reason %q", st, driver.ReasonOOM)
	}
}
