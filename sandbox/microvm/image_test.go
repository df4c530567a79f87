package microvm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/host"
)

// TestImages creates images of templates and checks that each is created once, and removed with
// its template when no sandbox uses it any more.
func TestImages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: a template's files may belong to any user")
	}
	state := t.TempDir()
	dir, err := sandbox.OpenDir(filepath.Join(state, "sandboxes"))
	if err != nil {
		t.Fatal(err)
	}
	images, err := sandbox.OpenImages(filepath.Join(state, "images"))
	if err != nil {
		t.Fatal(err)
	}
	d := &Driver{base: &host.Driver[instance]{Dir: dir}, images: images}
	made := make(map[string]string)
	for _, name := range []string{"stays", "goes", "used"} {
		rootfs := filepath.Join(state, name)
		if err := os.MkdirAll(filepath.Join(rootfs, "etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		image, err := d.image(t.Context(), sandbox.Template{Path: rootfs})
		if err != nil {
			t.Fatal(err)
		}
		before, err := os.Stat(image)
		if err != nil {
			t.Fatal(err)
		}
		again, err := d.image(t.Context(), sandbox.Template{Path: rootfs})
		if after, serr := os.Stat(again); err != nil || again != image || serr != nil || !os.SameFile(before, after) {
			t.Errorf("again: got %s, %v, want %s, unchanged", again, err, image)
		}
		made[name] = image
		if name != "stays" {
			if err := os.RemoveAll(rootfs); err != nil {
				t.Fatal(err)
			}
		}
	}
	err = dir.Create("s", func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "sandbox.json"), []byte(`{"image":"`+made["used"]+`"}`), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.dropImages(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"stays": true, "goes": false, "used": true} {
		if _, err := os.Stat(made[name]); (err == nil) != want {
			t.Errorf("the image of the template that %s: got %v", name, err)
		}
	}
}
