package volume_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/internal/clock"
)

// loops returns the number of loop devices of the files in a directory.
func loops(t *testing.T, dir string) (n int) {
	t.Helper()
	paths, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if raw, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(raw), dir) {
			n++
		}
	}
	return n
}

// Volumes that no container holds are unmounted when they have not been used for a time, with
// their loop devices.
func TestUnmount(t *testing.T) {
	s := newHarness(t)
	now := clock.NewManual(time.Now())
	s.opts.Clock = now
	s.restart()
	ctx := t.Context()
	var mounts []berth.VolumeMount
	for _, name := range []string{"held", "free"} {
		v := s.create(name)
		mounts = append(mounts, berth.VolumeMount{Name: name, VolumeID: v.ID, Path: "/mnt/volumes/" + name})
		_, err := s.l.Get(ctx, me.Project, v.ID) // mounts it
		s.check(err)
	}
	s.check(s.l.Hold(ctx, me.Project, "cntr_1", mounts[:1]))
	now.Advance(volume.IdleTime - 1)
	s.check(s.l.Unmount(volume.IdleTime))
	if got := loops(t, s.opts.Dir); got != 2 {
		t.Errorf("%d are mounted, want 2 that were just used", got)
	}
	now.Advance(1)
	s.check(s.l.Unmount(volume.IdleTime))
	await(t, "the free one is unmounted", func() bool { return loops(t, s.opts.Dir) == 1 })
	s.l.Release("cntr_1")
	s.check(s.l.Close())
	await(t, "both are unmounted", func() bool { return loops(t, s.opts.Dir) == 0 })
}

// A volume that is unmounted while a sandbox has it in its own namespace is mounted again as
// the same file system: two on one file would destroy each other.
func TestMountedElsewhere(t *testing.T) {
	s := newHarness(t)
	ctx := t.Context()
	v := s.create("v")
	mounts := []berth.VolumeMount{{Name: "v", VolumeID: v.ID, Path: "/mnt/volumes/v"}}
	open := func() string {
		t.Helper()
		ready, err := s.l.Open(ctx, me.Project, "cntr_1", mounts)
		s.check(err)
		return ready[0].Path
	}
	dir := open()
	s.check(os.WriteFile(filepath.Join(dir, "f"), []byte("first"), 0o600))
	elsewhere := exec.Command("unshare", "--mount", "sh", "-c", "echo ready; exec cat")
	in, err := elsewhere.StdinPipe()
	s.check(err)
	out, err := elsewhere.StdoutPipe()
	s.check(err)
	s.check(elsewhere.Start())
	defer func() {
		in.Close()
		_ = elsewhere.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	s.check(s.l.Close())
	if _, err := os.Stat(filepath.Join(dir, "f")); !os.IsNotExist(err) {
		t.Errorf("still mounted after Close: %v", err)
	}
	if got := open(); got != dir {
		t.Errorf("got %s, want %s", got, dir)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "f")); string(raw) != "first" {
		t.Errorf("got %q, %v", raw, err)
	}
	if got := loops(t, s.opts.Dir); got != 1 {
		t.Errorf("its file has %d loop devices, want 1", got)
	}
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}
