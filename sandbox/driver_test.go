package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCheckID(t *testing.T) {
	for _, id := range []string{"a", "cntr_0123-x", strings.Repeat("z", 64)} {
		if err := CheckID(id); err != nil {
			t.Errorf("CheckID(%q): got %v, want none", id, err)
		}
	}
	for _, id := range []string{"", ".", "..", "a/b", "A", "a\n", ".new-a", strings.Repeat("z", 65)} {
		if err := CheckID(id); err == nil {
			t.Errorf("CheckID(%q): got no error", id)
		}
	}
}

func TestWithDefaults(t *testing.T) {
	if got := (Limits{}).WithDefaults(); got != DefaultLimits {
		t.Errorf("nothing set: got %+v, want %+v", got, DefaultLimits)
	}
	all := Limits{Memory: 1, CPU: 0.5, PIDs: 3, Disk: 4}
	if got := all.WithDefaults(); got != all {
		t.Errorf("all set: got %+v, want %+v", got, all)
	}
}

func TestDir(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sandboxes")
	dir, err := OpenDir(root)
	if err != nil {
		t.Fatal(err)
	}
	fill := func(dir string) error { return os.WriteFile(filepath.Join(dir, "f"), nil, 0o600) }
	for _, id := range []string{"b", "a"} {
		if err := dir.Create(id, fill); err != nil {
			t.Fatal(err)
		}
	}
	if err := dir.Create("a", fill); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create twice: got %v, want %v", err, fs.ErrExist)
	}
	boom := errors.New("boom")
	if err := dir.Create("c", func(string) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("Create that fails: got %v, want %v", err, boom)
	}
	if _, err := dir.Find("c"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Find of a missing sandbox: got %v, want %v", err, ErrNotFound)
	}
	if path, err := dir.Find("a"); err != nil {
		t.Error(err)
	} else if _, err := os.Stat(filepath.Join(path, "f")); err != nil {
		t.Error(err)
	}

	// These are the directory of a crash during Create, and an unrelated one.
	for _, name := range []string{unfinished + "d", "Not An Id"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if dir, err = OpenDir(root); err != nil {
		t.Fatal(err)
	}
	got, err := dir.List()
	if want := []string{"a", "b"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("List: got %q, %v, want %q", got, err, want)
	}
	if _, err := os.Stat(filepath.Join(root, unfinished+"d")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unfinished directory: got %v, want %v", err, fs.ErrNotExist)
	}
	if err := dir.Create("d", fill); err != nil {
		t.Errorf("Create after a crash: %v", err)
	}
}

func TestTemplateDirectory(t *testing.T) {
	dir := t.TempDir()
	if got, err := (Template{Digest: "sha256:1", Path: dir}).Directory(); err != nil || got != dir {
		t.Errorf("got %q, %v, want %q", got, err, dir)
	}
	for _, path := range []string{"", ".", filepath.Join(dir, "missing")} {
		if _, err := (Template{Ref: "base", Path: path}).Directory(); err == nil || !strings.Contains(err.Error(),
			"base") {
			t.Errorf("path %q: got %v, want an error that names the template", path, err)
		}
	}
}
