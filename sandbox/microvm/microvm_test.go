package microvm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

func TestDriver(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{
		Open:      func(tb testing.TB, stateDir string) sandbox.Driver { return openTest(tb, stateDir) },
		Template:  drivertest.Template(t),
		Leftovers: leftovers,
	})
}

// openTest opens a driver that emulates, with the guest of this repository and cached fixtures.
func openTest(tb testing.TB, stateDir string) *Driver {
	tb.Helper()
	if _, err := FindQEMU(""); err != nil {
		tb.Skipf("skipped: %v", err)
	}
	kernel := drivertest.Cached(tb, "kernel", func(tmp string) error {
		_, err := FetchKernel(tb.Context(), tmp)
		return err
	})
	d, err := Open(Options{StateDir: stateDir, ImageDir: filepath.Join(filepath.Dir(kernel), "images"),
		KernelDir: kernel, GuestPath: drivertest.Guest(tb), Accel: "tcg"})
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

// leftovers returns what the sandboxes of a state directory left.
func leftovers(stateDir string) []string {
	var left []string
	entries, _ := os.ReadDir(filepath.Join(stateDir, "sandboxes"))
	for _, e := range entries {
		left = append(left, "directory "+e.Name())
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, " "+stateDir) {
			left = append(left, "mount "+line)
		}
	}
	instance, _ := os.ReadFile(filepath.Join(stateDir, "instance"))
	for _, pattern := range []string{"/sys/fs/cgroup/berth-", "/sys/fs/cgroup/*/berth-"} {
		groups, _ := filepath.Glob(pattern + string(instance))
		for _, g := range groups {
			left = append(left, "cgroup "+g)
		}
	}
	return left
}
