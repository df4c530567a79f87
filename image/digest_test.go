package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestDigest(t *testing.T) {
	for _, tc := range []struct {
		what   string
		change func(root string) error
		same   bool
		root   bool // needs root
	}{
		{what: "nothing", change: func(string) error { return nil }, same: true},
		{what: "times", change: func(root string) error {
			return os.Chtimes(filepath.Join(root, "a/file"), time.Unix(1, 0), time.Unix(2, 0))
		}, same: true},
		{what: "content", change: func(root string) error {
			return os.WriteFile(filepath.Join(root, "a/file"), []byte("XX"), 0o644)
		}},
		{what: "mode", change: func(root string) error { return os.Chmod(filepath.Join(root, "a/file"), 0o755) }},
		{what: "setuid", change: func(root string) error {
			return os.Chmod(filepath.Join(root, "a/file"), 0o644|os.ModeSetuid)
		}},
		{what: "name", change: func(root string) error {
			return os.Rename(filepath.Join(root, "a/file"), filepath.Join(root, "a/fila"))
		}},
		{what: "place", change: func(root string) error {
			return os.Rename(filepath.Join(root, "a/file"), filepath.Join(root, "file"))
		}},
		{what: "target of a link", change: func(root string) error {
			if err := os.Remove(filepath.Join(root, "link")); err != nil {
				return err
			}
			return os.Symlink("a/other", filepath.Join(root, "link"))
		}},
		{what: "empty directory", change: func(root string) error { return os.Mkdir(filepath.Join(root, "b"), 0o755) }},
		{what: "owner", change: func(root string) error {
			return os.Lchown(filepath.Join(root, "link"), 1000, 0)
		}, root: true},
		{what: "capabilities", change: func(root string) error {
			return unix.Setxattr(filepath.Join(root, "a/file"), "security.capability",
				[]byte("\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0)
		}, root: true},
	} {
		t.Run(tc.what, func(t *testing.T) {
			if tc.root {
				needRoot(t)
			}
			root := tree(t, map[string]string{"a/file": "xx"})
			if err := os.Symlink("a/file", filepath.Join(root, "link")); err != nil {
				t.Fatal(err)
			}
			before, bytes, err := digest(root, Config{})
			if err != nil {
				t.Fatal(err)
			}
			if bytes != 2 {
				t.Errorf("%d bytes, want 2", bytes)
			}
			if err := tc.change(root); err != nil {
				t.Fatal(err)
			}
			after, _, err := digest(root, Config{})
			if err != nil {
				t.Fatal(err)
			}
			if (after == before) != tc.same {
				t.Errorf("same digest: %v, want %v", after == before, tc.same)
			}
		})
	}
}
