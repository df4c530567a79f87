package server

import (
	"os"
	"path/filepath"
	"testing"
)

// A user may enter a directory if its mode and the modes of those above it allow that; root may always.
func TestMayEnter(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("skipped: only root can give directories away")
	}
	top := t.TempDir()
	for up := top; up != os.TempDir() && up != "/"; up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	user := identity{uid: 1000, gid: 1000, groups: []uint32{2000}}
	dir := func(name string, mode os.FileMode, uid, gid int) string {
		path := filepath.Join(top, name)
		for _, err := range []error{os.MkdirAll(path, 0o755), os.Chown(path, uid, gid), os.Chmod(path, mode)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	for path, want := range map[string]bool{
		dir("open", 0o755, 0, 0):           true,
		dir("closed", 0o700, 0, 0):         false,
		dir("closed/below", 0o777, 0, 0):   false,
		dir("own", 0o700, 1000, 0):         true,
		dir("own-closed", 0o077, 1000, 0):  false,
		dir("group", 0o710, 0, 1000):       true,
		dir("other-group", 0o710, 0, 2000): true,
		dir("no-group", 0o710, 0, 3000):    false,
		filepath.Join(top, "none"):         true,
	} {
		if got := mayEnter(path, user); got != want {
			t.Errorf("%s: got %v", path, got)
		}
		if !mayEnter(path, identity{}) {
			t.Errorf("%s: root may not enter", path)
		}
	}
}
