package gvisor

import (
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestCanary looks for what a sandbox wrote on the raw volume.
func TestCanary(t *testing.T) {
	rootfs := drivertest.Rootfs(t)
	t.Run("Sealed", func(t *testing.T) {
		v := drivertest.NewVolume(t, true)
		d := openTest(t, filepath.Join(v.Dir, "state"))
		if !d.Features().Erases {
			t.Skip("skipped: this kernel does not encrypt directories")
		}
		if during, after := drivertest.Canary(t, d, v, rootfs); during || after {
			t.Errorf("what a sandbox wrote is in the clear on the volume: while it lived %t, afterwards %t", during, after)
		}
		if left := leftovers(filepath.Join(v.Dir, "state")); left != nil {
			t.Errorf("left behind: %q", left)
		}
	})
	// The test would see it: a volume that does not encrypt keeps what was removed,
	// and the driver says so.
	t.Run("Plain", func(t *testing.T) {
		v := drivertest.NewVolume(t, false)
		d := openTest(t, filepath.Join(v.Dir, "state"))
		during, after := drivertest.Canary(t, d, v, rootfs)
		if !during || !after {
			t.Errorf("a canary in the clear was found while the sandbox lived %t, and afterwards %t; want both", during, after)
		}
		if d.Features().Erases {
			t.Error("the driver says that it erases")
		}
	})
}
