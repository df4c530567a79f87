package docker

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/dockertest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// Mounts that a crash left without a container are removed at the next start, and their content
// stays.
func TestStaleMounts(t *testing.T) {
	opts := Options{Host: dockertest.Host(t)}
	state, source := drivertest.StateDir(t), drivertest.StateDir(t)
	d := openTest(t, state, opts)
	if !d.features.Mounts {
		t.Skipf("skipped: no mounts: %s", d.noMounts)
	}
	kept := filepath.Join(source, "kept")
	if err := os.WriteFile(kept, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	bound, err := d.mounts.bind("lost", []sandbox.Mount{{Name: "a", Path: source},
		{Name: "b", Path: source, ReadOnly: true}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{unix.ST_NODEV | unix.ST_NOSUID, unix.ST_NODEV | unix.ST_NOSUID | unix.ST_RDONLY} {
		var st unix.Statfs_t
		if err := unix.Statfs(bound[i].Source, &st); err != nil ||
			st.Flags&(unix.ST_NODEV|unix.ST_NOSUID|unix.ST_RDONLY) != want {
			t.Errorf("%s: got flags %x, %v, want %x", bound[i].Source, st.Flags, err, want)
		}
	}
	if _, err := d.mounts.bind("lost", []sandbox.Mount{{Name: "a", Path: source}}); err == nil {
		t.Error("mounts of a sandbox that already has mounts: got no error")
	}

	openTest(t, state, opts)
	if left, err := os.ReadDir(string(d.mounts)); err != nil || len(left) > 0 {
		t.Errorf("after the next start: got %v, %v, want none", left, err)
	}
	if got, err := os.ReadFile(kept); string(got) != "kept" {
		t.Errorf("the mounted file: got %q, %v", got, err)
	}
}
