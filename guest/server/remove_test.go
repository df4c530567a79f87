package server

import (
	"os"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"
)

// The kernel's file systems are not removed, also not by way of a link: below /proc are links to the root
// directories of processes.
func TestRemove(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("/proc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/proc", "/sys", "/dev", "/proc/self", "/proc/self/cwd", "/proc/self/../self",
		filepath.Join(dir, "link/self")} {
		if err := refuseKernels(path); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s: got %v, want permission denied", path, err)
		}
	}
	tree := filepath.Join(dir, "tree")
	if err := os.MkdirAll(filepath.Join(tree, "a/b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc", filepath.Join(tree, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{tree, tree, filepath.Join(dir, "link"), filepath.Join(dir, "none/at/all")} {
		if err := remove("", path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s remains: %v", path, err)
		}
	}
}
