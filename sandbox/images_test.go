package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

// An image is identified by the template's digest, wherever the template is, and without a
// digest by the template's directory.
func TestImages(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"first", "second"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	images, err := OpenImages(filepath.Join(dir, "images"))
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	get := func(name, digest string) string {
		t.Helper()
		path, err := images.Get(Template{Path: filepath.Join(dir, name), Digest: digest},
			func(path, rootfs string) error {
				made++
				return os.WriteFile(path, []byte(rootfs), 0o600)
			})
		if err != nil {
			t.Fatal(err)
		}
		return path
	}

	plain := get("first", "")
	if again := get("first", ""); again != plain || made != 1 {
		t.Errorf("without a digest: got %s and %s, made %d, want one image", plain, again, made)
	}
	byDigest := get("first", "sha256:a")
	if byDigest == plain || made != 1 {
		t.Errorf("with a digest: made %d, want the image by path linked to another name", made)
	}
	if moved := get("second", "sha256:a"); moved != byDigest || made != 1 {
		t.Errorf("a moved template: got %s, made %d, want %s", moved, made, byDigest)
	}
	if other := get("first", "sha256:b"); other == byDigest {
		t.Errorf("another digest: got the same image")
	}

	if err := os.RemoveAll(filepath.Join(dir, "first")); err != nil {
		t.Fatal(err)
	}
	if err := images.Drop(map[string]bool{byDigest: true}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{plain: false, byDigest: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("Drop: %s exists: %t, want %t", path, err == nil, want)
		}
	}
}
