package templates

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/build"
	"github.com/berth-run/berth/image"
)

// An evicting is a puller whose quota removes spare images.
type evicting struct {
	*pulling
	t *testing.T
}

func newEvicting(t *testing.T, storage int64) *evicting {
	t.Helper()
	p := newPulling(t, storage, nil)
	builds := build.New(build.Options{Images: p.Puller, Objects: p.db,
		Log: slog.New(slog.DiscardHandler)})
	p.quota.Reclaim(builds.MakeRoom)
	return &evicting{p, t}
}

// pull pulls an image of 3 MiB.
func (e *evicting) pull(repository string) (digest string, release func(), err error) {
	e.t.Helper()
	return e.Pull(e.t.Context(), "proj_a", e.push(e.t, repository, 3*mebibyte), "", "", func(string) {})
}

// pulled returns the digests of the images of the project.
func (e *evicting) pulled() (digests []string) {
	e.t.Helper()
	all, err := e.Templates.Images.List()
	if err != nil {
		e.t.Fatal(err)
	}
	for _, one := range all {
		digests = append(digests, one.Digest)
	}
	return digests
}

// template returns an image of the project.
func (e *evicting) template(digest string) image.Template {
	e.t.Helper()
	one, err := e.Templates.Images.Get(digest)
	if err != nil {
		e.t.Fatal(err)
	}
	return one
}

// A project pulls any number of images: the one that was not used for the longest time goes when the quota is full.
// Its next pull is a new transfer, not an error.
func TestPulledImagesEvicted(t *testing.T) {
	e := newEvicting(t, 8*mebibyte)
	digests := map[string]string{}
	for i := range 22 { // more than the twenty that a project once had at most
		name := fmt.Sprintf("app%d", i)
		digest, release, err := e.pull(name)
		if err != nil {
			t.Fatalf("image %d: %v", i, err)
		}
		digests[name] = digest
		release()
	}
	if left := e.pulled(); len(left) != 2 || !slices.Contains(left, digests["app21"]) ||
		!slices.Contains(left, digests["app20"]) {
		t.Errorf("%d images are left, want the two that were used last", len(left))
	}
	if _, release, err := e.pull("app20"); err != nil { // from now on the last used
		t.Fatal(err)
	} else {
		release()
	}
	again, release, err := e.pull("app0")
	if err != nil || again != digests["app0"] {
		t.Fatalf("a removed image: %s, %v, want %s", again, err, digests["app0"])
	}
	release()
	if left := e.pulled(); !slices.Contains(left, digests["app20"]) || slices.Contains(left, digests["app21"]) {
		t.Error("not the image went that was not used for the longest time")
	}
	if room, err := e.quota.Room(t.Context(), "proj_b"); err != nil || room != 8*mebibyte {
		t.Errorf("another project: room for %d bytes, %v", room, err)
	}
}

// An image stays while a build uses it, and while a container or a snapshot refers to it; then the quota's error says
// that there is no room.
func TestPulledImageInUseStays(t *testing.T) {
	e := newEvicting(t, 8*mebibyte)
	building, release, err := e.pull("building")
	if err != nil {
		t.Fatal(err)
	}
	snapshot, done, err := e.pull("snapshot")
	if err != nil {
		t.Fatal(err)
	}
	done()
	e.used = map[string]bool{snapshot: true}
	if _, _, err := e.pull("third"); berth.ErrorCode(err) != berth.CodeRateLimited {
		t.Errorf("without room: got %v", err)
	}
	if left := e.pulled(); len(left) != 2 || !slices.Contains(left, building) || !slices.Contains(left, snapshot) {
		t.Errorf("left: %v, want both images in use", left)
	}
	release()
	if _, done, err = e.pull("third"); err != nil {
		t.Fatalf("after the build: %v", err)
	}
	done()
	if left := e.pulled(); len(left) != 2 || slices.Contains(left, building) || !slices.Contains(left, snapshot) {
		t.Errorf("left: %v, want the image of the snapshot and the new one", left)
	}
}

// A container that a request is about to create from an image keeps the image.
func TestRequestedImageStays(t *testing.T) {
	e := newEvicting(t, 8*mebibyte)
	digest, release, err := e.pull("app")
	if err != nil {
		t.Fatal(err)
	}
	release()
	if _, err := e.Templates.Find(digest); err != nil {
		t.Fatal(err)
	}
	spares, err := e.Spares(t.Context(), "proj_a")
	if err != nil || len(spares) != 1 {
		t.Fatalf("got %v, %v", spares, err)
	}
	if err := spares[0].Remove(context.Background()); err != build.ErrInUse {
		t.Errorf("a requested image: got %v, want %v", err, build.ErrInUse)
	}
	if err := e.Templates.drop(e.template(digest), nil, time.Now().Add(requestGrace)); err != nil {
		t.Error(err)
	}
	if left := e.pulled(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
