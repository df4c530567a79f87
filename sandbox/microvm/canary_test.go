package microvm

import (
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/internal/longtest"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestCanary searches the raw volume for data that a sandbox wrote.
func TestCanary(t *testing.T) {
	longtest.Skip(t)
	rootfs := drivertest.Rootfs(t)
	v := drivertest.NewVolume(t, true)
	d := openTest(t, filepath.Join(v.Dir, "state"))
	if !d.Features().Erases {
		t.Skip("skipped: the kernel cannot encrypt directories of ext4")
	}
	if during, after := drivertest.Canary(t, d, v, rootfs); during || after {
		t.Errorf("the canary is on the volume: during %v, after %v", during, after)
	}
}
