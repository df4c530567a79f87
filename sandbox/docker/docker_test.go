package docker

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/moby/client"

	"github.com/berth-run/berth/internal/dockertest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

func TestMain(m *testing.M) { dockertest.Main(m) }

func TestDriver(t *testing.T) { runSuite(t, dockertest.Host(t), "", guestSocket) }

// runSuite runs the drivers' suite with one of an engine's runtimes.
func runSuite(t *testing.T, host, runtime, socket string) {
	t.Setenv(dockertest.HostEnv, host) // for the server that the suite kills
	drivertest.Run(t, drivertest.Harness{
		Open: func(tb testing.TB, stateDir string) sandbox.Driver {
			return openTest(tb, stateDir, Options{Host: host, Runtime: runtime})
		},
		Template:  drivertest.Template(t),
		Socket:    socket,
		OwnersRun: runtime != "", // gVisor does not get the flags of a mount
		Leftovers: func(stateDir string) []string { return leftovers(t, host, stateDir) },
	})
}

// openTest opens a driver with this repository's guest.
func openTest(tb testing.TB, stateDir string, opts Options) *Driver {
	tb.Helper()
	opts.StateDir, opts.GuestPath = stateDir, drivertest.Guest(tb)
	d, err := Open(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		d.guest.name = "" // removes the guest's volume; the template's image stays for the next test
		if err := d.guest.sweep(context.Background()); err != nil {
			tb.Error(err)
		}
		d.client.Close()
	})
	return d
}

// leftovers returns the objects in the engine that a state directory's sandboxes left.
func leftovers(t *testing.T, host, stateDir string) []string {
	c, err := connect(host)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer c.Close()
	instance, err := os.ReadFile(filepath.Join(stateDir, "instance"))
	if err != nil {
		t.Error(err)
	}
	ctx := t.Context()
	ours := make(client.Filters).Add("label", labelInstance+"="+string(instance))
	var left []string
	mounts, _ := os.ReadDir(filepath.Join(stateDir, "mounts"))
	for _, m := range mounts {
		left = append(left, "mounts of "+m.Name())
	}
	containers, err := c.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: ours})
	if err != nil {
		t.Error(err)
	}
	for _, i := range containers.Items {
		left = append(left, "container "+i.Names[0])
	}
	volumes, err := c.VolumeList(ctx, client.VolumeListOptions{Filters: ours})
	if err != nil {
		t.Error(err)
	}
	for i, v := range volumes.Items {
		if i > 0 {
			left = append(left, "volume "+v.Name) // the first volume is the guest's
		}
	}
	return left
}
