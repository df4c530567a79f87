package state

import (
	"archive/tar"
	"bytes"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	tagged "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/image"
)

// A template made from an image is in a backup, and restored with its digest.
func TestRepositoryTemplate(t *testing.T) {
	state := t.TempDir()
	open, err := Open(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	record, err := audit.Open(filepath.Join(state, AuditDir), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range []string{"bin/", "etc/", "tmp/"} {
		w.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o755})
	}
	w.WriteHeader(&tar.Header{Name: "bin/sh", Typeflag: tar.TypeReg, Mode: 0o755, Size: 3})
	w.Write([]byte("#!/"))
	w.Close()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	platform, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(platform, l)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := tagged.NewTag("tiny:latest")
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := tarball.Write(ref, img, &archive); err != nil {
		t.Fatal(err)
	}
	templates, err := image.Open(ImagesDir(state), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	want, err := templates.Load(t.Context(), &archive, image.LoadOptions{Name: "tiny"})
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "backups")
	if _, _, err := BackupTo(t.Context(), state, Repeated{To: to}); err != nil {
		t.Fatal(err)
	}
	key, err := BackupKey(state)
	if err != nil {
		t.Fatal(err)
	}
	restored := filepath.Join(t.TempDir(), "state")
	if _, err := RestoreFrom(t.Context(), From{URL: to, Key: key, At: time.Now()}, restored, "", ""); err != nil {
		t.Fatal(err)
	}
	again, err := image.Open(ImagesDir(restored), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.Get("tiny"); err != nil || got.Digest != want.Digest {
		t.Errorf("got %q, %v, want %q", got.Digest, err, want.Digest)
	}
}
