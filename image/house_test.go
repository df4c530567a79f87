package image

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// needRoot skips the test unless it runs as root.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can build templates")
	}
}

func open(t *testing.T, dir string) *Store {
	t.Helper()
	l, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fakeTool puts a program named mmdebstrap first in the PATH. It is a shell script, in which
// $root is the directory to fill.
func fakeTool(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	text := "#!/bin/sh\nset -e\nfor a; do case $a in */rootfs) root=$a ;; esac; done\n" +
		`mkdir -p "$root/var/lib/dpkg"; : >"$root/var/lib/dpkg/status"` + "\n" + script
	if err := os.WriteFile(filepath.Join(dir, "mmdebstrap"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// tree makes a directory of files from their paths and contents.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, content := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// entries returns the names in a directory of the store.
func entries(t *testing.T, l *Store, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(l.dir, pattern))
	if err != nil {
		t.Fatal(err)
	}
	return found
}
