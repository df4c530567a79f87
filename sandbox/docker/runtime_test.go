package docker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/internal/dockertest"
	"github.com/berth-run/berth/internal/longtest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// runsc returns a program that runs gVisor with the flags that sandboxes need, so that sudo
// works. An engine's configuration has runtimeArgs for this.
func runsc(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "runsc")
	script := "#!/bin/sh\nexec " + drivertest.Runsc(t) + " --platform=systrap --allow-suid \"$@\"\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDriverOnGVisor runs the suite with gVisor as the engine's runtime.
func TestDriverOnGVisor(t *testing.T) {
	longtest.Skip(t)
	host := os.Getenv(dockertest.HostEnv) // of the test that started this one, to kill it
	if host == "" {
		host = dockertest.Start(t, "--add-runtime=walled="+runsc(t))
	}
	runSuite(t, host, "walled", "") // its tmpfs does not limit the number of files, which use the sandbox's own memory
}

// TestRuntime runs a sandbox with a runtime of the engine other than its default.
func TestRuntime(t *testing.T) {
	host := dockertest.Start(t, "--add-runtime=walled="+runsc(t))
	d := openTest(t, drivertest.StateDir(t), Options{Host: host, Runtime: "walled"})
	if got := d.Features().Isolation; got != "gvisor" {
		t.Errorf("isolation: got %q, want gvisor", got)
	}
	b := drivertest.Start(t, d, sandbox.Spec{ID: "walled", Template: drivertest.Template(t)})
	if got := b.Must("sudo dmesg | grep -c gVisor"); got != "1" {
		t.Errorf("the kernel's log: got %s lines about gVisor, want 1", got)
	}
	if _, err := Open(Options{StateDir: drivertest.StateDir(t), GuestPath: drivertest.Guest(t), Host: host,
		Runtime: "lost"}); err == nil {
		t.Error("an unknown runtime: got no error")
	}
}
