package gvisor

import (
	"os"
	"os/exec"
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
		Socket:    guestSocket,
		Leftovers: leftovers,
	})
}

// TestClients runs programs of the base template against the network.
func TestClients(t *testing.T) {
	drivertest.Clients(t, openTest(t, drivertest.StateDir(t)))
}

func TestHostileTemplates(t *testing.T) {
	drivertest.HostileTemplates(t, openTest(t, drivertest.StateDir(t)))
}

// TestFastStart checks that berth-runsc's package faststart is initialized before the package
// of gVisor whose initialization it speeds up.
func TestFastStart(t *testing.T) {
	cmd := exec.Command(drivertest.Runsc(t), "--version")
	cmd.Env = []string{"GODEBUG=inittrace=1"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	first := strings.Index(string(out), "berth-runsc/faststart @")
	then := strings.Index(string(out), "sentry/hostmm @")
	if first < 0 || then < first {
		t.Errorf("order of initialisation: got faststart at %d and hostmm at %d of\n%s", first, then, out)
	}
}

// openTest opens a driver with programs of this repository.
func openTest(tb testing.TB, stateDir string) *Driver {
	tb.Helper()
	d, err := Open(Options{
		StateDir:  stateDir,
		RunscPath: drivertest.Runsc(tb),
		GuestPath: drivertest.Guest(tb),
		ImageDir:  drivertest.ImageDir(tb),
	})
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
	comms, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, c := range comms {
		if raw, _ := os.ReadFile(c); strings.Contains(string(raw), stateDir) && strings.HasPrefix(string(raw),
			"runsc") {
			left = append(left, "process "+strings.ReplaceAll(string(raw), "\x00", " "))
		}
	}
	return left
}
