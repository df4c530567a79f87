package guest_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Folder yields regular files only: no links, wherever they lead, no FIFOs, no sockets.
func TestFolder(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	secret := filepath.Join(t.TempDir(), "secret")
	for name, text := range map[string]string{filepath.Join(b.dir, "a.txt"): "hello",
		filepath.Join(b.dir, "sub/run.sh"): "#!/bin/sh", secret: "no"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text),
			0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(filepath.Join(b.dir, "sub/run.sh"), 0o755),
		os.Symlink(secret, filepath.Join(b.dir, "leak")),
		os.Symlink("/", filepath.Join(b.dir, "sub/root")), os.Symlink("sub", filepath.Join(b.dir, "same")),
		syscall.Mkfifo(filepath.Join(b.dir, "fifo"), 0o644)); err != nil {
		t.Fatal(err)
	}
	read := func(path string) (got []string, err error) {
		for f, err := range c.Folder(t.Context(), b.dir, path) {
			if err != nil {
				return got, err
			}
			text, err := io.ReadAll(f.Content)
			if err != nil || int64(len(text)) != f.Size || f.Modified.IsZero() {
				t.Errorf("%s: %d bytes of %d, modified %v, %v", f.Path, len(text), f.Size, f.Modified, err)
			}
			line := strings.TrimPrefix(f.Path, b.dir) + " " + string(text)
			if f.Executable {
				line += " x"
			}
			got = append(got, line)
		}
		return got, nil
	}
	for path, want := range map[string][]string{"": {"/a.txt hello", "/sub/run.sh #!/bin/sh x"},
		"sub": {"/sub/run.sh #!/bin/sh x"}, "a.txt": {"/a.txt hello"}} {
		got, err := read(path)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%q: %v (-want +got):\n%s", path, err, diff)
		}
	}
	for path, want := range map[string]error{"none": fs.ErrNotExist, "leak": fs.ErrInvalid, "same": fs.ErrInvalid,
		"../x": fs.ErrInvalid, "/etc": fs.ErrInvalid} {
		if got, err := read(path); len(got) != 0 || !errors.Is(err, want) {
			t.Errorf("%q: got %v, %v, want %v", path, got, err, want)
		}
	}
	// A file that changes while it is read does not affect the rest.
	for range c.Folder(t.Context(), b.dir, "") {
		break // and one may stop early
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}
