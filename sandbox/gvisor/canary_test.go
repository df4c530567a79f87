package gvisor

import (
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestCanary searches the raw volume for data that a sandbox wrote.
func TestCanary(t *testing.T) {
	rootfs := drivertest.Rootfs(t)
	t.Run("Sealed", func(t *testing.T) {
		v := drivertest.NewVolume(t, true)
		d := openTest(t, filepath.Join(v.Dir, "state"))
		if !d.Features().Erases {
			t.Skip("skipped: this kernel does not encrypt directories")
		}
		if during, after := drivertest.Canary(t, d, v, rootfs); during || after {
			t.Errorf("data of a sandbox is in the clear on the volume: while it ran %t, afterwards %t", during, after)
		}
		if left := leftovers(filepath.Join(v.Dir, "state")); left != nil {
			t.Errorf("left behind: %q", left)
		}
	})
	// This checks the test itself: a volume without encryption retains removed data, and the
	// driver reports that it does not erase.
	t.Run("Plain", func(t *testing.T) {
		v := drivertest.NewVolume(t, false)
		d := openTest(t, filepath.Join(v.Dir, "state"))
		during, after := drivertest.Canary(t, d, v, rootfs)
		if !during || !after {
			t.Errorf("a canary in the clear was found while the sandbox ran %t, and afterwards %t; want both", during,
				after)
		}
		if d.Features().Erases {
			t.Error("Features().Erases is true")
		}
	})
}
