package volume_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/sandbox/host"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

var (
	me   = berth.Caller{Project: "proj_mine", Key: "key_mine"}
	them = berth.Caller{Project: "proj_theirs"}
)

// A harness is a Service with its parts.
type harness struct {
	t    *testing.T
	opts volume.Options
	l    *volume.Service
	dir  string // of the audit log
}

func newHarness(t *testing.T) *harness {
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can mount volumes")
	}
	t.Parallel()
	s := &harness{t: t, dir: t.TempDir()}
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	s.check(err)
	record, err := audit.Open(s.dir, slog.New(slog.DiscardHandler))
	s.check(err)
	s.opts = volume.Options{Dir: filepath.Join(t.TempDir(), "volumes"), Objects: db, Seal: seal.New([32]byte{1}),
		Audit: record}
	s.restart()
	t.Cleanup(func() {
		s.unmount()
		record.Close()
		db.Close()
	})
	return s
}

func (s *harness) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// restart starts the server again.
func (s *harness) restart() {
	s.t.Helper()
	var err error
	s.opts.Log = slog.New(slog.NewTextHandler(s.t.Output(), nil))
	s.l, err = volume.New(s.opts)
	s.check(err)
	s.check(s.l.Sweep(context.Background()))
}

// unmount does what a restart of the machine does, except that the kernel forgets its keys only
// then. A process that another test starts has a copy of all descriptors until it executes its program, and a volume
// with an open file is busy.
func (s *harness) unmount() {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	dirs, _ := filepath.Glob(filepath.Join(s.opts.Dir, "*", "vol_*"))
	for _, dir := range dirs {
		if err := unix.Unmount(dir, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			s.t.Errorf("unmount %s: %v", dir, err)
		}
	}
}

func (s *harness) create(name string) *berth.Volume {
	s.t.Helper()
	v, err := s.l.Create(s.t.Context(), me, volume.CreateRequest{Name: name, MaxBytes: 64 << 20})
	if berth.ErrorCode(err) == berth.CodeUnavailable {
		s.t.Skipf("skipped: this machine cannot make volumes: %v", err)
	}
	s.check(err)
	return v
}

// mount returns the directory with a volume's content on the host.
func (s *harness) mount(name string) string {
	s.t.Helper()
	mounts, err := s.l.Resolve(s.t.Context(), me.Project, []berth.VolumeMount{{Name: name}})
	s.check(err)
	ready, err := s.l.Open(s.t.Context(), me.Project, "cntr_a", mounts)
	s.check(err)
	return ready[0].Path
}

func TestVolume(t *testing.T) {
	s := newHarness(t)
	v := s.create("data")
	if _, err := s.l.Create(t.Context(), me, volume.CreateRequest{Name: "data"}); berth.ErrorCode(
		err) != berth.CodeInvalid {
		t.Errorf("Create of the same name: got %v", err)
	}
	for _, req := range []volume.CreateRequest{{Name: ""}, {Name: "../x"}, {Name: "x", MaxBytes: 1},
		{Name: "x", MaxBytes: 1 << 50}, {Name: "x", ExpiresAt: new(int64(1))}} {
		if _, err := s.l.Create(t.Context(), me, req); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("Create(%+v): got %v", req, err)
		}
	}
	for _, err := range []error{
		func() error { _, err := s.l.Get(t.Context(), them.Project, v.ID); return err }(),
		s.l.Delete(t.Context(), them, v.ID),
		func() error {
			_, err := s.l.Resolve(t.Context(), them.Project, []berth.VolumeMount{{Name: "data"}})
			return err
		}(),
	} {
		if berth.ErrorCode(err) != berth.CodeNotFound {
			t.Errorf("another project: got %v, want not found", err)
		}
	}

	dir := s.mount("data")
	s.check(os.WriteFile(filepath.Join(dir, "kept"), []byte("kept"), 0o600))
	// Its size is a hard limit.
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, 80<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("80 MB into a volume of 64: got %v, want %v", err, unix.ENOSPC)
	}
	if got, err := s.l.Get(t.Context(), me.Project, v.ID); err != nil || got.Bytes < 30<<20 || got.Bytes > 64<<20 {
		t.Errorf("Get of a full volume: got %+v, %v", got, err)
	}
	s.check(os.Remove(filepath.Join(dir, "big")))

	// It still exists after a restart of the server, and of the machine.
	s.restart()
	s.unmount()
	if got, err := os.ReadFile(filepath.Join(s.mount("data"), "kept")); err != nil || string(got) != "kept" {
		t.Errorf("after a restart: got %q, %v", got, err)
	}

	// A volume in use cannot be deleted.
	mounts, err := s.l.Resolve(t.Context(), me.Project, []berth.VolumeMount{{Name: "data", Path: "/mnt/volumes/other"}})
	s.check(err)
	s.check(s.l.Hold(t.Context(), me.Project, "cntr_a", mounts))
	if err := s.l.Delete(t.Context(), me, v.ID); berth.ErrorCode(err) != berth.CodeConflict {
		t.Errorf("Delete of a volume in use: got %v", err)
	}
	s.l.Release("cntr_a")
	s.check(s.l.Delete(t.Context(), me, v.ID))
	if err := s.l.Hold(t.Context(), me.Project, "cntr_b", mounts); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("Hold of a removed volume: got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.opts.Dir, "*", "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	var entries []audit.Action
	for e, err := range audit.Entries(s.dir, "") {
		s.check(err)
		if e.Object == string(v.ID) {
			entries = append(entries, e.Action)
		}
	}
	if len(entries) != 4 || entries[0] != audit.VolumeCreated || entries[3] != audit.VolumeDeleted {
		t.Errorf("the log has %q", entries)
	}
}

// A restored state has the files of volumes, but not the directories that they are mounted at.
func TestRestored(t *testing.T) {
	s := newHarness(t)
	v := s.create("data")
	s.check(os.WriteFile(filepath.Join(s.mount("data"), "kept"), []byte("kept"), 0o600))
	s.unmount()
	s.check(os.Remove(filepath.Join(s.opts.Dir, string(me.Project), string(v.ID))))
	s.restart()
	if _, err := s.l.Get(t.Context(), me.Project, v.ID); err != nil {
		t.Errorf("Get: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(s.mount("data"), "kept")); err != nil || string(got) != "kept" {
		t.Errorf("got %q, %v", got, err)
	}
	s.check(s.l.Delete(t.Context(), me, v.ID))
}

// A start ends the freeze of a volume that a killed backup has left.
func TestFrozen(t *testing.T) {
	s := newHarness(t)
	v := s.create("data")
	dir := s.mount("data")
	d, err := os.Open(filepath.Join(s.opts.Dir, string(me.Project), string(v.ID)))
	s.check(err)
	defer d.Close()
	s.check(unix.IoctlSetInt(int(d.Fd()), 0xC0045877, 0)) // FIFREEZE
	s.restart()
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(filepath.Join(dir, "new"), []byte("new"), 0o600) }()
	select {
	case err := <-wrote:
		s.check(err)
	case <-time.After(time.Minute):
		unix.IoctlSetInt(int(d.Fd()), 0xC0045878, 0) // FITHAW
		t.Error("a write waits for ever")
	}
}

func TestResolve(t *testing.T) {
	s := newHarness(t)
	s.create("a")
	for _, path := range []string{"/", "/mnt/volumes", "/mnt/volumes/", "/mnt/volumes/..", "/mnt/volumes/a/b", "/etc",
		"/mnt/volumes/A", "/mnt/volumes/../volumes/a"} {
		if _, err := s.l.Resolve(t.Context(), me.Project,
			[]berth.VolumeMount{{Name: "a", Path: path}}); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("a mount at %q: got %v", path, err)
		}
	}
	if _, err := s.l.Resolve(t.Context(), me.Project, []berth.VolumeMount{{Name: "a"}, {Name: "a"}}); berth.ErrorCode(
		err) != berth.CodeInvalid {
		t.Errorf("two mounts at one path: got %v", err)
	}
}

func TestExpire(t *testing.T) {
	s := newHarness(t)
	at := time.Now().Add(time.Hour).Unix()
	v, err := s.l.Create(t.Context(), me, volume.CreateRequest{Name: "brief", MaxBytes: 16 << 20, ExpiresAt: &at})
	if berth.ErrorCode(err) == berth.CodeUnavailable {
		t.Skipf("skipped: %v", err)
	}
	s.check(err)
	mounts, err := s.l.Resolve(t.Context(), me.Project, []berth.VolumeMount{{Name: "brief"}})
	s.check(err)
	s.check(s.l.Hold(t.Context(), me.Project, "cntr_a", mounts))
	later := time.Now().Add(2 * time.Hour)
	s.check(s.l.Expire(t.Context(), later))
	if _, err := s.l.Get(t.Context(), me.Project, v.ID); err != nil {
		t.Errorf("a volume in use expired: %v", err)
	}
	s.l.Release("cntr_a")
	s.check(s.l.Expire(t.Context(), later))
	if _, err := s.l.Get(t.Context(), me.Project, v.ID); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("Get of an expired volume: got %v", err)
	}
}

// A volume's file contains none of its content in the clear, and nothing is left of it after a
// crash during its removal.
func TestCanary(t *testing.T) {
	s := newHarness(t)
	v := s.create("secret")
	dir := s.mount("secret")
	if err := host.CanSeal(filepath.Dir(dir)); err != nil {
		t.Skipf("skipped: this kernel does not encrypt directories: %v", err)
	}
	word := rand.Text() + rand.Text()
	s.check(os.WriteFile(filepath.Join(dir, word), bytes.Repeat([]byte(word), 100_000), 0o600))
	unix.Sync()
	raw, err := os.ReadFile(filepath.Join(s.opts.Dir, string(me.Project), string(v.ID)+".img"))
	s.check(err)
	if bytes.Contains(raw, []byte(word)) {
		t.Error("a volume's file has its content in the clear")
	}
	s.check(s.opts.Objects.DeleteObject(t.Context(), me.Project, store.ObjectKey{Kind: volume.Kind, ID: string(v.ID)}))
	s.restart()
	if left, _ := filepath.Glob(filepath.Join(s.opts.Dir, "*", "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
