package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/blob/blobtest"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

type note struct{ Text string }

// A harness is a collection of notes with its parts.
type harness struct {
	t       *testing.T
	bucket  *blobtest.Storage
	content *blob.Bucket
	records blob.Objects[note]
	blobs   *blob.Collection
}

func newHarness(t *testing.T) *harness {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &harness{t: t, bucket: blobtest.New(t),
		records: blob.Objects[note]{Store: db, Kind: "note", Clock: clock.System}}
	t.Cleanup(func() {
		db.Close()
	})
	s.content = blob.NewBucket(s.bucket, "note", nil)
	s.blobs = blob.NewCollection(blob.Options{Noun: "note", Records: s.records, Remove: s.content.Remove})
	return s
}

// create creates a note that expires at a time; 0 means never.
func (s *harness) create(ref blob.Ref, key blob.Key, text string, expires int64) error {
	return s.blobs.Create(s.t.Context(), s.creation(ref, key, text, expires))
}

func (s *harness) creation(ref blob.Ref, key blob.Key, text string, expires int64) blob.Creation {
	return blob.Creation{Ref: ref,
		Write: func(ctx context.Context) error {
			return s.content.Write(ctx, ref, key, func(w io.Writer) error {
				_, err := io.WriteString(w, text)
				return err
			})
		},
		Save:  func(ctx context.Context) error { return s.records.Create(ctx, ref, 1, &expires, &note{text}) },
		Entry: func() audit.Entry { return audit.Entry{} }}
}

func (s *harness) delete(ctx context.Context, r blob.Ref) error {
	return s.blobs.Delete(ctx, r, audit.Entry{})
}

// contents fails the test unless there are want contents.
func (s *harness) contents(what string, want int) {
	s.t.Helper()
	if n, _, err := s.content.Totals(s.t.Context()); n != want || err != nil {
		s.t.Errorf("%s: got %d contents, %v, want %d", what, n, err, want)
	}
}

var mine, theirs = blob.Ref{Project: "proj_mine", ID: "a"}, blob.Ref{Project: "proj_theirs", ID: "a"}

func TestBlob(t *testing.T) {
	s, key := newHarness(t), blob.NewKey()
	if err := s.create(mine, key, "canary", 0); err != nil {
		t.Fatal(err)
	}
	raw := s.bucket.Get("proj_mine/a")
	if bytes.Contains(raw, []byte("canary")) {
		t.Errorf("the content is stored as %q", raw)
	}
	for name, open := range map[string]func() (io.ReadCloser, error){
		"Open":       func() (io.ReadCloser, error) { return s.content.Open(t.Context(), mine, key, int64(len(raw))) },
		"OpenSeeker": func() (io.ReadCloser, error) { return s.content.OpenSeeker(t.Context(), mine, key, 6) },
	} {
		r, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(r); string(text) != "canary" || err != nil {
			t.Errorf("%s: got %q, %v", name, text, err)
		}
		r.Close()
	}
	if err := s.delete(t.Context(), theirs); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Delete of another project's: got %v", err)
	}
	if err := s.delete(t.Context(), mine); err != nil {
		t.Error(err)
	}
	s.contents("Delete", 0)
	if _, err := s.records.Get(t.Context(), mine); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get after Delete: got %v", err)
	}
	if err := s.delete(t.Context(), mine); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Delete again: got %v", err)
	}
}

// A creation that fails leaves neither a content nor a record.
func TestCreateFails(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		admitted int // calls of Admit that succeed
		change   func(*blob.Creation)
	}{
		"not admitted":       {0, func(*blob.Creation) {}},
		"not admitted later": {1, func(*blob.Creation) {}},
		"writing":            {2, func(c *blob.Creation) { c.Write = func(context.Context) error { return failed } }},
		"verifying": {2, func(c *blob.Creation) {
			write := c.Write
			c.Write = func(ctx context.Context) error { return errors.Join(write(ctx), failed) }
		}},
		"saving": {2, func(c *blob.Creation) { c.Save = func(context.Context) error { return failed } }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newHarness(t)
			creation := s.creation(mine, blob.NewKey(), "a", 0)
			calls := 0
			creation.Admit = func(context.Context) error {
				if calls++; calls > c.admitted {
					return failed
				}
				return nil
			}
			c.change(&creation)
			if err := s.blobs.Create(t.Context(), creation); !errors.Is(err, failed) {
				t.Errorf("got %v, want %v", err, failed)
			}
			s.contents(name, 0)
			if exists, err := s.records.Exists(t.Context(), mine); exists || err != nil {
				t.Errorf("record exists: %t, %v", exists, err)
			}
		})
	}
}

// Expire deletes expired blobs, also after one that cannot be deleted.
func TestExpire(t *testing.T) {
	s := newHarness(t)
	now := time.Now().Unix()
	for ref, at := range map[blob.Ref]int64{{Project: "p", ID: "used"}: now - 3, {Project: "p", ID: "old"}: now - 2,
		{Project: "p", ID: "never"}: 0, {Project: "p", ID: "later"}: now + 1000} {
		if err := s.create(ref, blob.NewKey(), "a", at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.records.Get(t.Context(), blob.Ref{Project: "p", ID: "old"}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get of an expired record: got %v", err)
	}
	remove := func(ctx context.Context, r blob.Ref) error {
		if r.ID == "used" {
			return berth.Errorf(berth.CodeConflict, "in use")
		}
		return s.delete(ctx, r)
	}
	for range 2 {
		if err := s.blobs.Expire(t.Context(), time.Now(), remove); err != nil {
			t.Fatal(err)
		}
		s.contents("Expire", 3)
	}
	if err := s.records.Extend(t.Context(), blob.Ref{Project: "p", ID: "used"}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := s.blobs.Expire(t.Context(), time.Now(), s.delete); err != nil {
		t.Fatal(err)
	}
	s.contents("Expire after Extend", 3)
}

// Sweep removes contents without a record.
func TestSweep(t *testing.T) {
	s := newHarness(t)
	if err := s.create(mine, blob.NewKey(), "a", 0); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{theirs.String(), "stray"} {
		s.bucket.Put(key, []byte("x"))
	}
	if err := s.content.Sweep(t.Context(), s.records); err != nil {
		t.Fatal(err)
	}
	s.contents("Sweep", 1)
}

// A sealed key is opened by the same server and for the same blob only.
func TestKeys(t *testing.T) {
	server, key := seal.New([32]byte{1}), blob.NewKey()
	sealed := blob.SealKey(server, key[:], []byte("a"))
	if got, err := blob.OpenKey(server, sealed, []byte("a"), len(key)); err != nil || !bytes.Equal(got, key[:]) {
		t.Errorf("got %x, %v", got, err)
	}
	if _, err := blob.OpenKey(server, sealed, []byte("b"), len(key)); err == nil {
		t.Error("the key opens for another blob")
	}
	if _, err := blob.OpenKey(seal.New([32]byte{2}), sealed, []byte("a"), len(key)); err == nil {
		t.Error("another server opens the key")
	}
	if _, err := blob.OpenKey(server, sealed, []byte("a"), 64); err == nil {
		t.Error("a key of another size opens")
	}
}
