package statefile

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenRefusesWhatIsNoFile replaces a file by other kinds. None may block the reader.
func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.WriteFile(file, []byte("content"), 0o600))
	for name, make := range map[string]func(string) error{
		"FIFO":            func(p string) error { return unix.Mkfifo(p, 0o600) },
		"directory":       func(p string) error { return os.Mkdir(p, 0o700) },
		"link":            func(p string) error { return os.Symlink(file, p) },
		"link to nothing": func(p string) error { return os.Symlink(p+"-not", p) },
		"device":          func(p string) error { return os.Symlink("/dev/zero", p) },
	} {
		path := filepath.Join(dir, name)
		check(make(path))
		if raw, err := ReadFile(path); err == nil {
			t.Errorf("%s: got %q", name, raw)
		}
		if raw, err := ReadLinked(path); (err == nil) != (name == "link") || err == nil && string(raw) != "content" {
			t.Errorf("%s: ReadLinked: got %q, %v", name, raw, err)
		}
	}
	if raw, err := ReadFile(file); err != nil || string(raw) != "content" {
		t.Errorf("got %q, %v", raw, err)
	}
	if _, err := ReadFile(filepath.Join(dir, "not there")); !os.IsNotExist(err) {
		t.Errorf("got %v, want a not-exist error", err)
	}
}
