package docker

import (
	"testing"

	"github.com/berth-run/berth/internal/dockertest"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/drivertest"
)

// A template's digest names its image, wherever its directory is.
func TestTag(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	images := &templates{}
	tag := func(t *testing.T, digest, path string) string {
		t.Helper()
		tag, err := images.tag(sandbox.Template{Digest: digest, Path: path})
		if err != nil {
			t.Fatal(err)
		}
		return tag
	}
	a := tag(t, "sha256:a", first)
	if moved := tag(t, "sha256:a", second); moved != a {
		t.Errorf("a moved template: got %s, want %s", moved, a)
	}
	for _, other := range []string{tag(t, "sha256:b", first), tag(t, "", first)} {
		if other == a {
			t.Errorf("another template: got the same tag %s", a)
		}
	}
	if tag(t, "", first) == tag(t, "", second) {
		t.Error("two directories without a digest: got the same tag")
	}
	if !images.current(sandbox.Template{Digest: "sha256:a", Path: first}, a) ||
		images.current(sandbox.Template{Digest: "sha256:a", Path: first + "/none"}, a) {
		t.Error("current: want true for the tag, and false without a directory")
	}
}

func TestHostileTemplates(t *testing.T) {
	drivertest.HostileTemplates(t, openTest(t, drivertest.StateDir(t), Options{Host: dockertest.Host(t)}))
}
