package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// keep adds a template of one file to the store.
func keep(t *testing.T, l *Store, as, content string) Template {
	t.Helper()
	dir := tree(t, map[string]string{
		"rootfs/etc/motd":            content,
		"rootfs/var/lib/dpkg/status": "Package: b\nStatus: install ok installed\nVersion: 2-1\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 9\n\nPackage: a\nStatus: install ok installed\nVersion: 1:1\n",
	})
	got, err := l.install(t.Context(), name{name: as, recipe: "sha256:recipe"}, Template{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestInstall(t *testing.T) {
	l := open(t, t.TempDir())
	made := keep(t, l, "base", "hello")
	if diff := cmp.Diff([]string{"a=1:1", "b=2-1"}, made.Packages); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
	if got, err := os.ReadFile(filepath.Join(made.Rootfs, "etc/motd")); err != nil || string(got) != "hello" {
		t.Errorf("content: got %q, %v", got, err)
	}
	for _, ref := range []string{"base", made.Digest} {
		got, err := l.Get(ref)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(made, got); diff != "" {
			t.Errorf("Get(%q) (-want +got):\n%s", ref, diff)
		}
	}
	if got, want := made.Recipe, "sha256:recipe"; got != want {
		t.Errorf("recipe is %q, want %q", got, want)
	}
	for _, ref := range []string{"other", "", "../names/base", "sha256:12", "sha256:" + string(make([]byte, 64))} {
		if _, err := l.Get(ref); !errors.Is(err, ErrNotFound) {
			t.Errorf("Get(%q): %v, want ErrNotFound", ref, err)
		}
	}
}

// Templates of equal content are stored once, under any number of names.
func TestSameContent(t *testing.T) {
	l := open(t, t.TempDir())
	one, two := keep(t, l, "one", "hello"), keep(t, l, "two", "hello")
	if one.Digest != two.Digest || one.Rootfs != two.Rootfs {
		t.Errorf("equal content is stored twice, as %s and %s", one.Rootfs, two.Rootfs)
	}
	if got := entries(t, l, "templates/*"); len(got) != 1 {
		t.Errorf("templates are %v, want one", got)
	}
	other := keep(t, l, "one", "good bye")
	if other.Digest == two.Digest {
		t.Error("different content has the same digest")
	}
	if got, err := l.Get("two"); err != nil || got.Digest != two.Digest {
		t.Errorf("two is %s, %v, want %s", got.Digest, err, two.Digest)
	}
}

func TestListAndRemove(t *testing.T) {
	l := open(t, t.TempDir())
	old := keep(t, l, "base", "old")
	keep(t, l, "base", "new")
	keep(t, l, "alias", "new")
	check := func(want ...string) {
		t.Helper()
		all, err := l.List()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range all {
			got = append(got, x.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("names (-want +got):\n%s", diff)
		}
	}
	check("", "alias", "base")
	if _, err := l.Get("nope"); err == nil ||
		err.Error() != `no such template: "nope"; available templates: alias, base` {
		t.Errorf("got %v, want the available templates", err)
	}
	for _, step := range []struct {
		ref       string
		templates int // templates left afterwards
		names     []string
	}{
		{"base", 2, []string{"", "alias"}},
		{old.Digest, 1, []string{"alias"}},
		{"alias", 0, nil},
	} {
		if err := l.Remove(step.ref, nil); err != nil {
			t.Fatal(err)
		}
		check(step.names...)
		if got := entries(t, l, "templates/*"); len(got) != step.templates {
			t.Errorf("after removing %s: got %v, want %d templates", step.ref, got, step.templates)
		}
		if err := l.Remove(step.ref, nil); !errors.Is(err, ErrNotFound) {
			t.Errorf("removing %s again: %v, want ErrNotFound", step.ref, err)
		}
	}
}

// List skips a damaged template and returns the others.
func TestDamaged(t *testing.T) {
	l := open(t, t.TempDir())
	broken := keep(t, l, "broken", "1")
	keep(t, l, "whole", "2")
	if err := os.WriteFile(filepath.Join(filepath.Dir(broken.Rootfs), "template.json"), []byte("{"),
		0o644); err != nil {
		t.Fatal(err)
	}
	all, err := l.List()
	if err != nil || len(all) != 1 || all[0].Name != "whole" {
		t.Errorf("List: got %v, %v, want only whole", all, err)
	}
	if _, err := l.Get("broken"); err == nil {
		t.Error("Get of a damaged template: got no error")
	}
}

func TestOpenSweeps(t *testing.T) {
	l := open(t, tree(t, map[string]string{"building-1/template/rootfs/etc/motd": "half"}))
	if left := entries(t, l, "building-*"); len(left) != 0 {
		t.Errorf("after Open: got %v, want nothing left", left)
	}

	// Open must not sweep the directory of a running build.
	lock, err := l.lock(t.Context(), buildLock)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := os.Mkdir(filepath.Join(l.dir, "building-2"), 0o700); err != nil {
		t.Fatal(err)
	}
	open(t, l.dir)
	if left := entries(t, l, "building-*"); len(left) != 1 {
		t.Errorf("after Open during a build: got %v, want building-2", left)
	}
}
