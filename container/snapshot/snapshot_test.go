package snapshot_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob/blobtest"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/layer"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/google/go-cmp/cmp"
)

const mine, theirs berth.ProjectID = "proj_mine", "proj_theirs"

// A harness is a Service with its parts.
type harness struct {
	t      testing.TB
	db     *sqlite.DB
	bucket *blobtest.Storage
	opts   snapshot.Options
	l      *snapshot.Service
}

func newHarness(t testing.TB) *harness {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, db: db, bucket: blobtest.New(t)}
	t.Cleanup(func() {
		db.Close()
	})
	h.opts = snapshot.Options{Objects: db, Contents: h.bucket, Seal: seal.New([32]byte{7})}
	h.l = snapshot.New(h.opts)
	return h
}

// content writes a layer with one file.
func content(text string) func(io.Writer) (layer.Made, error) {
	return func(w io.Writer) (layer.Made, error) {
		var in bytes.Buffer
		tw := tar.NewWriter(&in)
		_ = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "mnt/data/f", Size: int64(len(text))})
		_, _ = io.WriteString(tw, text)
		tw.Close()
		return layer.Make(w, &in, "", layer.Limits{})
	}
}

func (h *harness) create(text string) *berth.Snapshot {
	h.t.Helper()
	r := &snapshot.Record{Snapshot: &berth.Snapshot{ContainerID: "cntr_1", Name: "mine", Cause: berth.SnapshotRequested,
		Template: "sha256:1"}}
	if err := h.l.Create(h.t.Context(), mine, r, content(text)); err != nil {
		h.t.Fatal(err)
	}
	return r.Snapshot
}

// blobs returns the contents of the bucket.
func (h *harness) blobs() map[string][]byte {
	h.t.Helper()
	all := map[string][]byte{}
	for _, key := range h.bucket.Keys() {
		all[key] = h.bucket.Get(key)
	}
	return all
}

func wantCode(t *testing.T, what string, err error, code berth.Code) {
	t.Helper()
	if got := berth.ErrorCode(err); got != code {
		t.Errorf("%s: got %v, want %v", what, err, code)
	}
}

func TestLibrary(t *testing.T) {
	h := newHarness(t)
	ctx := t.Context()
	s := h.create("canary")
	if s.Bytes != 6 || s.StoredBytes == 0 || s.CreatedAt == 0 || s.Object != "container.snapshot" {
		t.Errorf("got %+v", s)
	}
	got, err := h.l.Get(ctx, mine, s.ID)
	if diff := cmp.Diff(s, got); err != nil || diff != "" {
		t.Errorf("Get: %v (-want +got):\n%s", err, diff)
	}
	r, err := h.l.Record(ctx, mine, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	body, err := h.l.Open(ctx, mine, r)
	if err != nil {
		t.Fatal(err)
	}
	in := tar.NewReader(body)
	if head, err := in.Next(); err != nil || head.Name != "mnt/data/f" {
		t.Errorf("got %+v, %v", head, err)
	}
	if text, err := io.ReadAll(in); err != nil || string(text) != "canary" {
		t.Errorf("got %q, %v", text, err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	other := h.create("other")
	list, more, err := h.l.List(ctx, mine, store.Page{Limit: 1})
	if err != nil || !more || len(list) != 1 || list[0].ID != other.ID {
		t.Errorf("List: got %v, %v, %v", list, more, err)
	}
	if n, err := snapshot.StoredBytes(ctx, h.db, mine); err != nil || n != s.StoredBytes+other.StoredBytes {
		t.Errorf("Bytes: got %d, %v", n, err)
	}

	// Snapshots of another project are not found.
	_, err = h.l.Get(ctx, theirs, s.ID)
	wantCode(t, "Get of theirs", err, berth.CodeNotFound)
	wantCode(t, "Delete of theirs", h.l.Delete(ctx, theirs, s.ID), berth.CodeNotFound)
	if list, _, err := h.l.List(ctx, theirs, store.Page{Limit: 10}); err != nil || len(list) != 0 {
		t.Errorf("List of theirs: got %v, %v", list, err)
	}

	if err := h.l.Delete(ctx, mine, s.ID); err != nil {
		t.Fatal(err)
	}
	_, err = h.l.Get(ctx, mine, s.ID)
	wantCode(t, "Get after Delete", err, berth.CodeNotFound)
	wantCode(t, "Delete again", h.l.Delete(ctx, mine, s.ID), berth.CodeNotFound)
	if all := h.blobs(); len(all) != 1 {
		t.Errorf("%d blobs are left", len(all))
	}
}

// A stored snapshot cannot be read without its key, and a changed one is rejected.
func TestSealed(t *testing.T) {
	h := newHarness(t)
	noise := make([]byte, 200_000)
	rand.Read(noise)
	s := h.create("canary" + string(noise))
	r, err := h.l.Record(t.Context(), mine, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	for at, raw := range h.blobs() {
		if bytes.Contains(raw, []byte("canary")) || bytes.Contains(raw, noise[:64]) {
			t.Errorf("%s is not encrypted", at)
		}
		for _, changed := range [][]byte{raw[:len(raw)-1], raw[:100_000], append(bytes.Clone(raw[:50_000]),
			raw[50_001:]...)} {
			h.bucket.Put(at, changed)
			body, err := h.l.Open(t.Context(), mine, r)
			if err == nil {
				_, err = io.Copy(io.Discard, body)
				body.Close()
			}
			if err == nil {
				t.Errorf("a content cut to %d of %d bytes was read without an error", len(changed), len(raw))
			}
		}
	}
	h.opts.Seal = seal.New([32]byte{8})
	if _, err := snapshot.New(h.opts).Open(t.Context(), mine, r); err == nil {
		t.Error("another server's key opens it")
	}
}

// A creation that fails leaves nothing behind.
func TestCreateFails(t *testing.T) {
	broken := errors.New("broken")
	refused := berth.Errorf(berth.CodeRateLimited, "no room")
	for name, c := range map[string]struct {
		write func(io.Writer) (layer.Made, error)
		room  func(bytes int64) error
		want  error
	}{
		"writing": {func(w io.Writer) (layer.Made, error) {
			_, _ = content("half")(w)
			return layer.Made{}, broken
		}, nil, broken},
		"another digest": {func(w io.Writer) (layer.Made, error) {
			made, err := content("a")(w)
			made.Digest = "sha256:no"
			return made, err
		}, nil, nil},
		"no archive": {func(w io.Writer) (layer.Made, error) {
			_, err := w.Write(bytes.Repeat([]byte("no"), 1000))
			return layer.Made{}, err
		}, nil, nil},
		"no room at all":  {content("a"), func(int64) error { return refused }, refused},
		"no room for all": {content("a"), func(n int64) error { return map[bool]error{true: refused}[n > 0] }, refused},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			if c.room != nil {
				h.opts.Quota = func(_ context.Context, p berth.ProjectID, n int64) error { return c.room(n) }
			}
			err := snapshot.New(h.opts).Create(t.Context(), mine, &snapshot.Record{Snapshot: &berth.Snapshot{}},
				c.write)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if list, _, err := h.l.List(t.Context(), mine, store.Page{Limit: 10}); err != nil || len(list) > 0 ||
				len(h.blobs()) > 0 {
				t.Errorf("left: %v, %d contents, %v", list, len(h.blobs()), err)
			}
		})
	}
}

func TestExpire(t *testing.T) {
	h := newHarness(t)
	kept := h.create("kept")
	at := time.Now().Unix() + 100
	r := &snapshot.Record{Snapshot: &berth.Snapshot{ExpiresAt: &at}}
	if err := h.l.Create(t.Context(), mine, r, content("lost")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at   int64
		want int
	}{{at - 1, 2}, {at, 1}} {
		if err := h.l.Expire(t.Context(), time.Unix(c.at, 0)); err != nil {
			t.Fatal(err)
		}
		if got := len(h.blobs()); got != c.want {
			t.Errorf("at %d: got %d, want %d", c.at, got, c.want)
		}
	}
	if _, err := h.l.Get(t.Context(), mine, kept.ID); err != nil {
		t.Error(err)
	}
}

// Contents that a crash left in the bucket are removed at the next start.
func TestSweep(t *testing.T) {
	h := newHarness(t)
	kept := h.create("kept")
	for _, at := range []string{"proj_mine/snap_lost", "proj_theirs/" + string(kept.ID), "stray"} {
		h.bucket.Put(at, []byte("x"))
	}
	if err := h.l.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := h.blobs(); len(all) != 1 || all["proj_mine/"+string(kept.ID)] == nil {
		t.Errorf("%d blobs are left", len(all))
	}
}

// The number of a project's snapshots is bounded, also with concurrent creations. Snapshots of
// forks do not count.
func TestCount(t *testing.T) {
	h := newHarness(t)
	full := berth.Errorf(berth.CodeRateLimited, "full")
	h.opts.Count = func(_ context.Context, p berth.ProjectID, kept int) error {
		if p == mine && kept >= 3 {
			return full
		}
		return nil
	}
	h.l = snapshot.New(h.opts)
	create := func(p berth.ProjectID, cause berth.SnapshotCause) error {
		r := &snapshot.Record{Snapshot: &berth.Snapshot{Cause: cause}}
		return h.l.Create(t.Context(), p, r, content("x"))
	}
	var made, refused atomic.Int32
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			switch err := create(mine, berth.SnapshotRequested); {
			case err == nil:
				made.Add(1)
			case errors.Is(err, full):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made.Load() != 3 || refused.Load() != 3 || len(h.blobs()) != 3 {
		t.Errorf("%d made, %d refused, %d contents, want 3 of each", made.Load(), refused.Load(), len(h.blobs()))
	}
	if err := create(theirs, berth.SnapshotRequested); err != nil {
		t.Errorf("another project's: %v", err)
	}
	if err := create(mine, berth.SnapshotExpired); !errors.Is(err, full) {
		t.Errorf("got %v, want the quota's error", err)
	}
}
