package microvm

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/testsuite"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// TestCrash interrupts the creation of a sandbox at every step that leaves something behind,
// and checks that a driver that is opened afterwards lists and removes it.
func TestCrash(t *testing.T) {
	spec := sandbox.Spec{ID: "half", Template: drivertest.Template(t), Limits: sandbox.DefaultLimits}
	for _, tt := range []struct {
		name  string
		crash func(t *testing.T, d *Driver, s instance) error
		want  sandbox.State
	}{
		{"DirectoryOnly", func(t *testing.T, d *Driver, s instance) error {
			return d.base.Dir.Create(s.id, func(dir string) error { return d.fill(t.Context(), dir, "/none", spec) })
		}, sandbox.StateCreated},
		{"DirectoryWithoutRecord", func(t *testing.T, d *Driver, s instance) error {
			return d.base.Dir.Create(s.id, func(string) error { return nil })
		}, sandbox.StateDead},
		{"Created", func(t *testing.T, d *Driver, s instance) error {
			return d.Create(t.Context(), spec)
		}, sandbox.StateCreated},
		{"MarkedAsStarted", func(t *testing.T, d *Driver, s instance) error {
			return errors.Join(d.Create(t.Context(), spec), os.WriteFile(s.path("started"), nil, 0o600))
		}, sandbox.StateDead},
		{"Launched", func(t *testing.T, d *Driver, s instance) error {
			if err := errors.Join(d.Create(t.Context(), spec), os.WriteFile(s.path("started"), nil,
				0o600)); err != nil {
				return err
			}
			rec, err := s.record()
			if err != nil {
				return err
			}
			_, err = d.launch(s, rec)
			return err
		}, ""}, // processes are alive, but QEMU's number was not saved, so the state is unknown
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := drivertest.StateDir(t)
			d := openTest(t, dir)
			s, err := d.base.At(spec.ID)
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.crash(t, d, s); err != nil {
				t.Fatal(err)
			}
			d = openTest(t, dir)
			if got, err := d.List(t.Context()); err != nil || !slices.Equal(got, []string{"half"}) {
				t.Errorf("List: got %q, %v, want half", got, err)
			}
			if st, err := d.Stats(t.Context(), "half"); (err == nil) != (tt.want != "") || st.State != tt.want {
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

// TestStartFails makes a machine and QEMU fail and checks that the error has the reason, and
// that no process is left.
func TestStartFails(t *testing.T) {
	d := openTest(t, drivertest.StateDir(t))
	for _, tt := range []struct {
		name, want string
		breakIt    func(s instance) error
	}{
		// This image has no file system: the machine's first program fails.
		{"Disk", "boot: mounting ext4 on /disk", func(s instance) error {
			return errors.Join(os.Truncate(s.path(diskFile), 0), os.Truncate(s.path(diskFile),
				sandbox.DefaultLimits.Disk))
		}},
		{"Image", "no such file", func(s instance) error {
			raw, err := os.ReadFile(s.path("sandbox.json"))
			if err != nil {
				return err
			}
			return os.WriteFile(s.path("sandbox.json"), []byte(strings.Replace(string(raw), `"image":"`,
				`"image":"/none`, 1)), 0o600)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := d.Create(t.Context(), sandbox.Spec{ID: "broken", Template: drivertest.Template(t),
				Env: []string{"SECRET=berth-canary-aa01"}}); err != nil {
				t.Fatal(err)
			}
			defer d.Destroy(t.Context(), "broken")
			s, err := d.base.Find("broken")
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.breakIt(s); err != nil {
				t.Fatal(err)
			}
			err = d.Start(t.Context(), "broken")
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("Start: got %v, want an error with %q and without the environment", err, tt.want)
			}
			if pids, err := s.cgroup.Procs(); err != nil || len(pids) != 0 {
				t.Errorf("processes: got %v, %v, want none", pids, err)
			}
			if st, err := d.Stats(t.Context(), "broken"); err != nil || st.State != sandbox.StateDead {
				t.Errorf("Stats: got %+v, %v, want dead", st, err)
			}
		})
	}
}

// TestMachineFails stops or kills a machine during its boot. The driver ends it, and starts another one with an unused
// disk.
func TestMachineFails(t *testing.T) {
	if !testsuite.HasAttacks() {
		testsuite.SkipInCore(t)
	}
	t.Run("hangs", func(t *testing.T) { failMachine(t, unix.SIGSTOP, 2*time.Second, "hangs and is started again") })
	t.Run("crashes", func(t *testing.T) { failMachine(t, unix.SIGKILL, time.Hour, "crashed and is started again") })
}

func failMachine(t *testing.T, signal unix.Signal, patience time.Duration, want string) {
	d := openTest(t, drivertest.StateDir(t))
	source := drivertest.StateDir(t)
	if err := os.Chown(source, user, user); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	d.log, d.patience = slog.New(slog.NewTextHandler(&log, nil)), patience
	spec := sandbox.Spec{ID: "hung", Template: drivertest.Template(t)}
	if d.share != "" { // its program is started again as well
		spec.Mounts = []sandbox.Mount{{Name: "data", Path: source}}
	}
	if err := d.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	defer d.Destroy(t.Context(), "hung")
	s, err := d.base.Find("hung")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- d.Start(t.Context(), "hung") }()
	var first int
	for alive := false; !alive; first, alive, _ = s.qemu() {
		select {
		case err := <-started:
			t.Fatalf("Start: got %v before its process started", err)
		case <-time.After(time.Millisecond):
		}
	}
	if err := unix.Kill(first, signal); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), want) {
		t.Errorf("log: got %q", log.String())
	}
	second, alive, _ := s.qemu()
	if !alive || second == first {
		t.Errorf("got process %d, alive %v, after %d", second, alive, first)
	}
	pids, err := s.cgroup.Procs()
	if err != nil || slices.Contains(pids, first) {
		t.Errorf("processes: got %v, %v, want others than %d", pids, err, first)
	}
	b := drivertest.Attach(t, d, "hung")
	if got := b.Must("echo mine >/mnt/data/new; cat /mnt/data/new"); got != "mine" {
		t.Errorf("got %q, want mine", got)
	}
	if len(spec.Mounts) > 0 {
		b.Must("touch /mnt/volumes/data/file")
	}
}

// TestStartGivenUp ends the context in the middle of Start.
func TestStartGivenUp(t *testing.T) {
	d := openTest(t, drivertest.StateDir(t))
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond} {
		if err := d.Create(t.Context(), sandbox.Spec{ID: "hasty", Template: drivertest.Template(t)}); err != nil {
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
		if pids, err := s.cgroup.Procs(); err != nil || len(pids) != 0 {
			t.Errorf("processes: got %v, %v, want none", pids, err)
		}
		if err := d.Destroy(t.Context(), "hasty"); err != nil {
			t.Errorf("Destroy: %v", err)
		}
	}
}

// TestHostRestarted changes the boot id of a sandbox.
func TestHostRestarted(t *testing.T) {
	dir := drivertest.StateDir(t)
	d := openTest(t, dir)
	if err := d.Create(t.Context(), sandbox.Spec{ID: "old", Template: drivertest.Template(t)}); err != nil {
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
