package docker

import (
	"testing"

	"github.com/berth-run/berth/internal/dockertest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestOutOfMemory fills memory that belongs to no process, in a small sandbox. The kernel kills
// processes, at last the guest.
func TestOutOfMemory(t *testing.T) {
	d := openTest(t, drivertest.StateDir(t), Options{Host: dockertest.Host(t)})
	b := drivertest.Start(t, d, sandbox.Spec{ID: "oom", Template: drivertest.Template(t),
		Limits: sandbox.Limits{Memory: 96 << 20}})
	st := b.Await("the end", func(st sandbox.Stats) bool {
		if st.State != sandbox.StateDead {
			b.Last("sudo sh -c 'for f in /dev/fill /dev/shm/fill; do dd if=/dev/zero of=$f bs=1M status=none; done'")
		}
		return st.State == sandbox.StateDead
	})
	if st.Reason != sandbox.ReasonOOM {
		t.Errorf("got %+v, want reason %q", st, sandbox.ReasonOOM)
	}
}
