package plainfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	for _, size := range []int{0, 1, 4095, 4096, 4097, 100_000} {
		want := bytes.Repeat([]byte("x"), size)
		if err := os.WriteFile(name, want, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, limit := range []int{1, 4096, 5000, 200_000} {
			got, err := Read(name, 0, limit)
			if err != nil || !bytes.Equal(got, want[:min(size, limit)]) {
				t.Errorf("%d bytes, limit %d: got %d, %v", size, limit, len(got), err)
			}
		}
	}
	if got, err := Read("/proc/self/mountinfo", 0, 1<<20); err != nil || len(got) == 0 {
		t.Errorf("mountinfo: got %d, %v", len(got), err)
	}
}

func TestReadLink(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(link, unix.O_NOFOLLOW, 10); err == nil {
		t.Errorf("got %q", got)
	}
	if _, err := Read(link+"2", 0, 10); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestCreate(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := Create(name, 0o600, os.Getuid(), os.Getgid()); err != nil {
		t.Fatal(err)
	}
	if err := Create(name, 0o600, -1, -1); !errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v", err)
	}
	if err := os.Symlink(name+"2", name+"3"); err != nil {
		t.Fatal(err)
	}
	if err := Create(name+"3", 0o600, -1, -1); err == nil {
		t.Error("created the target of a link")
	}
	if fi, err := os.Stat(name); err != nil || fi.Mode() != 0o600 || fi.Size() != 0 {
		t.Errorf("got %v, %v", fi, err)
	}
}
