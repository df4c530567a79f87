package templates

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/store/sqlite"
)

const mebibyte = 1 << 20

// A pulling is a puller of a project with a limit to its storage, and the registry that it pulls from.
type pulling struct {
	*Puller
	host  string
	state string
	quota *project.Quota
	db    *sqlite.DB
	deny  atomic.Bool     // whether the registry wants a password
	used  map[string]bool // digests that containers and snapshots refer to
}

func newPulling(t *testing.T, storage int64, door func(w http.ResponseWriter, r *http.Request)) *pulling {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can unpack images with their owners")
	}
	dir := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "berth.db"), &sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	images, err := image.Open(state.ImagesDir(dir), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	quota := project.NewQuota(project.QuotaOptions{Objects: db, Usages: db, Keys: db, Sizes: state.StoredSizes(db, dir),
		Limits: map[berth.ProjectID]berth.Limits{"": {StorageBytes: &storage}}})
	ts := New(images, &config.Config{}, quota.Limits)
	t.Cleanup(ts.Close)
	p := &pulling{state: dir, quota: quota, db: db}
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if door != nil {
			door(w, r)
		}
		if _, _, known := r.BasicAuth(); p.deny.Load() && !known {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	p.host = strings.TrimPrefix(srv.URL, "http://")
	p.Puller = &Puller{Templates: ts, Registries: []string{p.host}, Quota: quota, Most: 1 << 30,
		Room:  func() error { return nil },
		InUse: func(context.Context) (map[string]bool, error) { return p.used, nil }}
	return p
}

// push makes an image with a file of zeros, which its registry sends in a few kilobytes.
func (p *pulling) push(t *testing.T, repository string, size int64) string {
	t.Helper()
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/sh", Mode: 0o755, Size: 2})
		_, _ = w.Write([]byte("#!"))
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: repository, Mode: 0o644, Size: size})
		_, _ = w.Write(make([]byte, size))
		return io.NopCloser(&buf), w.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, RootFS: config.RootFS})
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(p.host + "/" + repository + ":1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	return ref.Name()
}

// A pulled image counts as what its project stores, and a project that has no room for it gets none of it.
func TestPulledImagesCount(t *testing.T) {
	p := newPulling(t, 8*mebibyte, nil)
	silent := func(string) {}
	small, large := p.push(t, "small", 5*mebibyte), p.push(t, "large", 64*mebibyte)
	if _, _, err := p.Pull(t.Context(), "proj_a", large, "", "", silent); berth.ErrorCode(err) != berth.CodeRateLimited {
		t.Errorf("an image of 64 MiB in 8 MiB: got %v, want %s", err, berth.CodeRateLimited)
	}
	if room, err := p.quota.Room(t.Context(), "proj_a"); err != nil || room != 8*mebibyte {
		t.Errorf("after a refused image: room for %d bytes, %v, want all", room, err)
	}
	if left, _ := filepath.Glob(filepath.Join(state.ImagesDir(p.state), "*", "*")); len(left) != 0 {
		t.Errorf("a refused image left %v", left)
	}
	digest, release, err := p.Pull(t.Context(), "proj_a", small, "", "", silent)
	if err != nil {
		t.Fatal(err)
	}
	if room, err := p.quota.Room(t.Context(), "proj_a"); err != nil || room > 3*mebibyte || room < 2*mebibyte {
		t.Errorf("with an image of 5 MiB in 8 MiB: room for %d bytes, %v", room, err)
	}
	if room, err := p.quota.Room(t.Context(), "proj_b"); err != nil || room != 8*mebibyte {
		t.Errorf("another project: room for %d bytes, %v, want all", room, err)
	}
	release()
	p.Templates.Close()
	if err := p.Templates.Images.Remove(digest, nil); err != nil {
		t.Fatal(err)
	}
	if room, err := p.quota.Room(t.Context(), "proj_a"); err != nil || room != 8*mebibyte {
		t.Errorf("after the image was removed: room for %d bytes, %v, want all", room, err)
	}
}

// Two images of a project that are pulled together cannot take the same room.
func TestPulledImagesTogether(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	p := newPulling(t, 8*mebibyte, func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/manifests/1") {
			both.Done()
			both.Wait()
		}
	})
	refs := []string{p.push(t, "one", 5*mebibyte), p.push(t, "two", 5*mebibyte)}
	errs := make([]error, len(refs))
	var pulls sync.WaitGroup
	for i, ref := range refs {
		pulls.Go(func() { _, _, errs[i] = p.Pull(t.Context(), "proj_a", ref, "", "", func(string) {}) })
	}
	pulls.Wait()
	refused := 0
	for _, err := range errs {
		if berth.ErrorCode(err) == berth.CodeRateLimited {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	if refused == 0 {
		t.Error("two images of 5 MiB were stored in 8 MiB")
	}
}

// The disk is looked at while an image arrives, not only before.
func TestPulledImageFillsDisk(t *testing.T) {
	p := newPulling(t, 1<<40, nil)
	ref := p.push(t, "large", 64*mebibyte)
	looks := 0
	full := &berth.Error{Code: berth.CodeInsufficientStorage, Message: "full"}
	p.Room = func() error {
		if looks++; looks > 1 { // the first is before the transfer
			return full
		}
		return nil
	}
	if _, _, err := p.Pull(t.Context(), "proj_a", ref, "", "", func(string) {}); !errors.Is(err, error(full)) {
		t.Errorf("got %v, want the error of the disk", err)
	}
}

// The configured size bounds an image also without a limit to storage.
func TestPulledImageSize(t *testing.T) {
	p := newPulling(t, -1, nil)
	p.Most = 2 * mebibyte
	ref := p.push(t, "large", 8*mebibyte)
	if _, _, err := p.Pull(t.Context(), "proj_a", ref, "", "",
		func(string) {}); berth.ErrorCode(err) != berth.CodeInvalid || !strings.Contains(err.Error(), "2097152") {
		t.Errorf("got %v, want that it exceeds 2097152 bytes", err)
	}
}

// A manifest cannot list a blob that its registry does not send, to read it from another project's image.
func TestPulledImageTakesNoBlob(t *testing.T) {
	var withheld atomic.Bool
	p := newPulling(t, 1<<40, func(w http.ResponseWriter, r *http.Request) {
		if withheld.Load() && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			panic(http.ErrAbortHandler)
		}
	})
	ref := p.push(t, "secret", 10)
	if _, _, err := p.Pull(t.Context(), "proj_a", ref, "", "", func(string) {}); err != nil {
		t.Fatal(err)
	}
	withheld.Store(true)
	if _, _, err := p.Pull(t.Context(), "proj_b", ref, "", "", func(string) {}); err == nil {
		t.Error("another project has the image although the registry sent none of its layers")
	}
}
