package guest_test

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Reading a file that changes during the read returns the old file or an error, never a mixture.
func TestFilesInMotion(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	const size = 8 << 20
	text := func(letter string) string { return strings.Repeat(letter, size) }
	for name, tt := range map[string]struct {
		change func(path string) error
		whole  bool
	}{
		"replaced": {func(string) error {
			return c.WriteFile(t.Context(), b.dir, "replaced", "", strings.NewReader(text("b")))
		}, true},
		"removed": {os.Remove, true},
		"longer": {func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString(text("b"))
			return errors.Join(err, f.Close())
		}, true},
		"shorter": {func(path string) error { return os.Truncate(path, 0) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.WriteFile(t.Context(), b.dir, name, "", strings.NewReader(text("a"))); err != nil {
				t.Fatal(err)
			}
			r, _, err := c.ReadFile(t.Context(), b.dir, name, "")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			first := make([]byte, 1)
			if _, err := io.ReadFull(r, first); err != nil {
				t.Fatal(err)
			}
			if err := tt.change(filepath.Join(b.dir, name)); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(r)
			if len(bytes.Trim(rest, "a")) > 0 {
				t.Error("the data is from two files")
			}
			if tt.whole && (err != nil || len(rest) != size-1) {
				t.Errorf("got %d bytes and %v, want the file as it was", 1+len(rest), err)
			}
			if !tt.whole && err == nil {
				t.Errorf("got %d bytes and no error for a truncated file", 1+len(rest))
			}
		})
	}
}

// Special files, and files with names that no client can send, are not read. The files
// beside them are.
func TestStrangeFiles(t *testing.T) {
	b := newBox(t)
	c := b.client(t)
	mknod := func(name string, mode uint32, dev uint64) {
		t.Helper()
		if err := unix.Mknod(filepath.Join(b.dir, name), mode|0o666, int(dev)); errors.Is(err, os.ErrPermission) {
			t.Logf("%s: %v", name, err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	mknod("zero", syscall.S_IFCHR, unix.Mkdev(1, 5)) // has no end
	mknod("full", syscall.S_IFCHR, unix.Mkdev(1, 7))
	mknod("disk", syscall.S_IFBLK, unix.Mkdev(1, 0))
	mknod("socket", syscall.S_IFSOCK, 0)
	for name, target := range map[string]string{"environ": "/proc/1/environ", "self": "/proc/self", "null": "/dev/null",
		"fd": "/proc/self/fd/0", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(b.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	changed, stop := iter.Pull(c.Watch(t.Context(), b.dir))
	defer stop()
	if err, ok := changed(); err != nil || !ok {
		t.Fatalf("watching: %v, %v", err, ok)
	}
	for _, name := range []string{"caf\xe9", "new\nline", "tab\t", "ok"} {
		if err := os.WriteFile(filepath.Join(b.dir, name), []byte("text"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"zero", "full", "disk", "socket", "environ", "self/environ", "self/root/etc/passwd",
		"null", "fd", "loop"} {
		if r, _, err := c.ReadFile(t.Context(), b.dir, name, ""); err == nil {
			got, _ := io.ReadAll(io.LimitReader(r, 100))
			r.Close()
			t.Errorf("reading %s gave %q", name, got)
		}
	}
	for _, name := range []string{"self/cwd/evil", "self/root/tmp/evil"} {
		if err := c.WriteFile(t.Context(), b.dir, name, "", strings.NewReader("evil")); err == nil {
			t.Errorf("writing %s was allowed", name)
		}
	}
	if err, ok := changed(); err != nil || !ok {
		t.Errorf("watching strange names: %v, %v", err, ok)
	}
	var names []string
	for f, err := range c.Folder(t.Context(), b.dir, "") {
		if err != nil {
			t.Fatalf("after %q: %v", names, err)
		}
		names = append(names, strings.TrimPrefix(f.Path, b.dir+"/"))
	}
	if !slices.Contains(names, "ok") || slices.ContainsFunc(names, func(n string) bool {
		return strings.ContainsAny(n, "\n\t") || !utf8.ValidString(n)
	}) {
		t.Errorf("the folder has %q", names)
	}
	entries, err := c.List(t.Context(), b.dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := filepath.Base(e.Path); e.Regular && name != "ok" {
			t.Errorf("the list has %q as a file", name)
		}
	}
}
