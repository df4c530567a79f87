package gvisor

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestCrash interrupts the creation of a sandbox at every step that leaves something behind,
// and checks that a driver that is opened afterwards lists and removes it.
func TestCrash(t *testing.T) {
	rootfs := drivertest.Rootfs(t)
	spec := sandbox.Spec{ID: "half", Template: sandbox.Template{Path: rootfs}, Limits: sandbox.DefaultLimits}
	for _, tt := range []struct {
		name  string
		crash func(t *testing.T, d *Driver, s instance)
		want  sandbox.State
	}{
		{"DirectoryOnly", func(t *testing.T, d *Driver, s instance) {
			if err := d.base.Dir.Create(s.id, func(dir string) error { return d.fill(dir, s, spec, "") }); err != nil {
				t.Fatal(err)
			}
		}, sandbox.StateCreated},
		{"DirectoryWithoutRecord", func(t *testing.T, d *Driver, s instance) {
			if err := d.base.Dir.Create(s.id, func(string) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}, sandbox.StateDead},
		{"Created", func(t *testing.T, d *Driver, s instance) {
			if err := d.Create(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
		}, sandbox.StateCreated},
		{"MarkedAsStarted", func(t *testing.T, d *Driver, s instance) {
			if err := errors.Join(d.Create(t.Context(), spec), os.WriteFile(s.path("started"), nil,
				0o600)); err != nil {
				t.Fatal(err)
			}
		}, sandbox.StateDead},
		{"InDestroy", func(t *testing.T, d *Driver, s instance) {
			if err := errors.Join(d.Create(t.Context(), spec), d.Start(t.Context(), s.id),
				s.Kill(t.Context()), os.Remove(s.path("sandbox.json"))); err != nil {
				t.Fatal(err)
			}
		}, sandbox.StateDead},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := drivertest.StateDir(t)
			d := openTest(t, dir)
			s, err := d.base.At(spec.ID)
			if err != nil {
				t.Fatal(err)
			}
			tt.crash(t, d, s)

			d = openTest(t, dir)
			if got, err := d.List(t.Context()); err != nil || !slices.Equal(got, []string{"half"}) {
				t.Errorf("List: got %q, %v, want half", got, err)
			}
			if st, err := d.Stats(t.Context(), "half"); err != nil || st.State != tt.want {
				t.Errorf("Stats: got %+v, %v, want %q", st, err, tt.want)
			}
			if err := d.Destroy(t.Context(), "half"); err != nil {
				t.Errorf("Destroy: %v", err)
			}
			if left := leftovers(dir); left != nil {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// TestStartFails makes runsc fail and checks that the error has the reason, and that no process
// is left.
func TestStartFails(t *testing.T) {
	rootfs := drivertest.Rootfs(t)
	d := openTest(t, drivertest.StateDir(t))
	if err := d.Create(t.Context(), sandbox.Spec{ID: "broken", Template: sandbox.Template{Path: rootfs},
		Env: []string{"SECRET=berth-canary-aa01"}}); err != nil {
		t.Fatal(err)
	}
	defer d.Destroy(t.Context(), "broken")
	s, err := d.base.Find("broken")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(s.path(sealed + "/config.json"))
	if err != nil {
		t.Fatal(err)
	}
	broken := strings.Replace(string(raw), guestPath, "/no/such/guest", 1)
	if err := os.WriteFile(s.path(sealed+"/config.json"), []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	err = d.Start(t.Context(), "broken")
	if err == nil || !strings.Contains(err.Error(), "/no/such/guest") {
		t.Errorf("Start: got %v, want an error that names the program", err)
	}
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("Start: the error has the environment: %v", err)
	}
	if pids := processesOf(t, s); len(pids) != 0 {
		t.Errorf("processes: got %v, want none", pids)
	}
	if st, err := d.Stats(t.Context(), "broken"); err != nil || st.State != sandbox.StateDead {
		t.Errorf("Stats: got %+v, %v, want dead", st, err)
	}
}

// TestStartGivenUp ends the context in the middle of Start.
func TestStartGivenUp(t *testing.T) {
	rootfs := drivertest.Rootfs(t)
	d := openTest(t, drivertest.StateDir(t))
	for _, after := range []time.Duration{0, 5 * time.Millisecond, 30 * time.Millisecond} {
		if err := d.Create(t.Context(), sandbox.Spec{ID: "hasty",
			Template: sandbox.Template{Path: rootfs}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), after)
		if err := d.Start(ctx, "hasty"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Start given up after %v: got %v, want %v", after, err, context.DeadlineExceeded)
		}
		cancel()
		s, err := d.base.Find("hasty")
		if err != nil {
			t.Fatal(err)
		}
		if pids := processesOf(t, s); len(pids) != 0 {
			t.Errorf("processes: got %v, want none", pids)
		}
		if err := d.Destroy(t.Context(), "hasty"); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	}
}

// TestHostRestarted changes the boot id of a sandbox.
func TestHostRestarted(t *testing.T) {
	rootfs := drivertest.Rootfs(t)
	dir := drivertest.StateDir(t)
	d := openTest(t, dir)
	if err := d.Create(t.Context(), sandbox.Spec{ID: "old", Template: sandbox.Template{Path: rootfs}}); err != nil {
		t.Fatal(err)
	}
	d = openTest(t, dir)
	d.base.BootID = "another"
	st, err := d.Stats(t.Context(), "old")
	if err != nil || st.State != sandbox.StateDead || st.Reason != sandbox.ReasonHost {
		t.Errorf("Stats: got %+v, %v, want dead with reason %q", st, err, sandbox.ReasonHost)
	}
	if err := d.Start(t.Context(), "old"); err == nil {
		t.Error("Start: got no error")
	}
	if err := d.Destroy(t.Context(), "old"); err != nil {
		t.Errorf("Destroy: %v", err)
	}
}
