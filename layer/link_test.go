package layer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-run/berth/layer"
)

// A hard link has the mode and the owners of its file: some programs apply those of the last
// name when they unpack a layer.
func TestLinksHaveTheModeOfTheirFile(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	if err := errors.Join(os.WriteFile(first, nil, 0o600), os.Chmod(first, 0o755), os.Chown(first, 1234, 4321),
		os.Link(first, second)); err != nil {
		t.Fatal(err)
	}
	var diff, made bytes.Buffer
	w := tar.NewWriter(&diff)
	if err := errors.Join((&layer.Differ{Root: dir}).Diff(w), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := layer.Make(&made, &diff, "", layer.Limits{}); err != nil {
		t.Fatal(err)
	}
	links := 0
	for in := tar.NewReader(&made); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeLink {
			links++
		}
		if h.Typeflag != tar.TypeDir && (h.Mode != 0o755 || h.Uid != 1234 || h.Gid != 4321) {
			t.Errorf("%s: got mode %o, owners %d:%d", h.Name, h.Mode, h.Uid, h.Gid)
		}
	}
	if links != 1 {
		t.Errorf("got %d links", links)
	}
}
