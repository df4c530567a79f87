package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Derive combines a template and a layer. It shares their files and leaves the base
// unchanged.
func TestDerive(t *testing.T) {
	needRoot(t)
	l := open(t, t.TempDir())
	base, err := l.Add(t.Context(), "base", newOCI(archive(shell, "etc/motd=hello", "opt/a=1", "opt/b=2",
		"big="+strings.Repeat("x", 1<<20))).image(), AddOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before, _, err := digest(base.Rootfs, base.Config)
	if err != nil {
		t.Fatal(err)
	}
	change := archive("etc/motd=goodbye", "opt/.wh.b=", "mnt/data/made=3", ".berth/state=secret",
		tar.Header{Typeflag: tar.TypeDir, Name: "opt/", Mode: 0o700})
	got, err := l.Derive(t.Context(), "mine", Change{Template: base.Digest, Digest: sumOf(change)},
		bytes.NewReader(change))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"etc/motd": "goodbye", "opt/a": "1", "mnt/data/made": "3"} {
		if text, err := os.ReadFile(filepath.Join(got.Rootfs, path)); err != nil || string(text) != want {
			t.Errorf("%s is %q, %v, want %q", path, text, err, want)
		}
	}
	for _, path := range []string{"opt/b", ".berth"} {
		if _, err := os.Lstat(filepath.Join(got.Rootfs, path)); err == nil {
			t.Errorf("%s exists", path)
		}
	}
	one, err1 := os.Stat(filepath.Join(base.Rootfs, "big"))
	two, err2 := os.Stat(filepath.Join(got.Rootfs, "big"))
	if err := errors.Join(err1, err2); err != nil || !os.SameFile(one, two) {
		t.Errorf("a shared file is stored twice: %v", err)
	}
	if after, _, err := digest(base.Rootfs, base.Config); err != nil || after != before {
		t.Errorf("the base template: got %s, %v, want %s", after, err, before)
	}
	if got.Snapshot == nil || got.Snapshot.Template != base.Digest || got.Digest == base.Digest {
		t.Errorf("derived: got %+v", got)
	}
	if err := l.Remove("base", nil); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(got.Rootfs, "opt/a")); err != nil || string(text) != "1" {
		t.Errorf("after removing the base: got %q, %v", text, err)
	}
	// Save and Load preserve the derived template.
	again, err := open(t, t.TempDir()).Load(t.Context(), bytes.NewReader(saved(t, l, "mine")), LoadOptions{})
	if err != nil || again.Digest != got.Digest {
		t.Errorf("loaded: got %s, %v, want %s", again.Digest, err, got.Digest)
	}
}

func TestDeriveFails(t *testing.T) {
	needRoot(t)
	l := open(t, t.TempDir())
	base, err := l.Add(t.Context(), "base", newOCI(archive(shell)).image(), AddOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		template string
		content  []byte
		want     string
	}{
		"no template": {sumOf(nil), archive(), "no such template"},
		"dots":        {base.Digest, archive("../x=1"), "invalid archive"},
		"no shell":    {base.Digest, archive("bin/.wh.sh="), "no /bin/sh"},
		"cut off":     {base.Digest, archive("x=" + strings.Repeat("y", 9000))[:2000], "unexpected EOF"},
	} {
		_, err := l.Derive(t.Context(), "mine", Change{Template: c.template}, bytes.NewReader(c.content))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", what, err, c.want)
		}
		if left := append(entries(t, l, "building-*"), entries(t, l, "names/mine")...); len(left) != 0 {
			t.Errorf("%s: leftovers: got %v, want none", what, left)
		}
	}
	if done, err := l.Prune(t.Context(), nil, time.Hour); err != nil || len(done.Templates) != 0 {
		t.Errorf("pruned %v, %v", done, err)
	}
}
