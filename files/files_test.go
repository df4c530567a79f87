package files_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/blob/blobtest"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

const mine, theirs berth.ProjectID = "proj_mine", "proj_theirs"

func open(t *testing.T, change ...func(*files.Options)) (*files.Service, *blobtest.Storage, store.Store) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	bucket := blobtest.New(t)
	t.Cleanup(func() {
		db.Close()
	})
	opts := files.Options{Store: db, Contents: bucket}
	for _, c := range change {
		c(&opts)
	}
	return files.New(opts), bucket, db
}

func TestFile(t *testing.T) {
	s, bucket, _ := open(t)
	f, err := s.Create(t.Context(), mine, files.CreateRequest{Filename: "ports.csv", Purpose: "user_data"},
		strings.NewReader("a,b"))
	if err != nil {
		t.Fatal(err)
	}
	r, got, err := s.Open(t.Context(), mine, f.ID)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if r.Close(); err != nil || string(text) != "a,b" || got.Bytes != 3 || got.Filename != "ports.csv" {
		t.Errorf("got %q, %+v, %v", text, got, err)
	}
	if _, _, err := s.Open(t.Context(), theirs, f.ID); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("another project's Open: got %v", err)
	}
	if err := s.Delete(t.Context(), theirs, f.ID); berth.ErrorCode(err) != berth.CodeNotFound ||
		len(bucket.Keys()) != 1 {
		t.Errorf("another project's Delete: got %v", err)
	}
	if err := s.Delete(t.Context(), mine, f.ID); err != nil || len(bucket.Keys()) != 0 {
		t.Errorf("Delete: %v, %d left", err, len(bucket.Keys()))
	}
	if _, err := s.Get(t.Context(), mine, f.ID); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("a deleted file: got %v", err)
	}
}

func TestRefused(t *testing.T) {
	s, bucket, db := open(t)
	for _, name := range []string{"", ".", "..", "a/b", "/etc/passwd", `a\b`, "a\x00b", "a\nb", "\xff",
		strings.Repeat("x", 256)} {
		if _, err := s.Create(t.Context(), mine, files.CreateRequest{Filename: name},
			strings.NewReader("x")); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("the name %q: got %v", name, err)
		}
	}
	s = files.New(files.Options{Store: db, Contents: bucket, MaxBytes: 4})
	if _, err := s.Create(t.Context(), mine, files.CreateRequest{Filename: "a"},
		strings.NewReader("12345")); berth.ErrorCode(err) != berth.CodeTooLarge {
		t.Errorf("a file that is too large: got %v", err)
	}
	broken := errors.New("broken")
	if _, err := s.Create(t.Context(), mine, files.CreateRequest{Filename: "a"}, io.MultiReader(strings.NewReader("12"),
		failing{broken})); !errors.Is(err, broken) {
		t.Errorf("an upload that fails halfway: got %v", err)
	}
	if n := len(bucket.Keys()); n != 0 {
		t.Errorf("refused uploads left %d keys", n)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Sweep removes bytes without an object, and Expire removes expired files.
func TestSweep(t *testing.T) {
	s, bucket, db := open(t)
	current, err := s.Create(t.Context(), mine, files.CreateRequest{Filename: "current", ExpiresAfterSeconds: 3600},
		strings.NewReader("c"))
	if err != nil {
		t.Fatal(err)
	}
	lost, err := s.Create(t.Context(), mine, files.CreateRequest{Filename: "lost"}, strings.NewReader("l"))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.DeleteFile(t.Context(), mine, lost.ID); err != nil {
		t.Fatal(err)
	}
	past := int64(1)
	if err := db.CreateFile(t.Context(), mine, &berth.File{ID: "file-past", ExpiresAt: &past}, nil); err != nil {
		t.Fatal(err)
	}
	bucket.Put("proj_mine/file-past", []byte("p"))
	if _, err := s.Get(t.Context(), mine, "file-past"); berth.ErrorCode(err) != berth.CodeNotFound {
		t.Errorf("an expired file: got %v", err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(bucket.Keys()); n != 2 {
		t.Errorf("got %d keys after Sweep, want the 2 with objects", n)
	}
	if err := s.Expire(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := db.GetFile(t.Context(), mine, "file-past"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an expired file's object: got %v, want %v", err, store.ErrNotFound)
	}
	if n := len(bucket.Keys()); n != 1 {
		t.Errorf("got %d keys after Expire, want 1", n)
	}
	if _, err := s.Get(t.Context(), mine, current.ID); err != nil {
		t.Errorf("the current file: %v", err)
	}
}

// Concurrent uploads cannot exceed the quota, and refused uploads leave no bytes.
func TestQuota(t *testing.T) {
	s, bucket, db := open(t, func(o *files.Options) {
		o.Quota = func(ctx context.Context, p berth.ProjectID, bytes int64) error {
			stored, err := o.Store.FileBytes(ctx, p)
			if err == nil && stored+bytes > 10 {
				err = berth.Errorf(berth.CodeRateLimited, "full")
			}
			return err
		}
	})
	var made, refused atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := s.Create(t.Context(), mine, files.CreateRequest{Filename: "a"}, strings.NewReader("four"))
			if err == nil {
				made.Add(1)
			} else if berth.ErrorCode(err) == berth.CodeRateLimited {
				refused.Add(1)
			} else {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 2 || refused.Load() != 6 || len(bucket.Keys()) != 2 {
		t.Errorf("got %d files, %d refusals and %d in the bucket, want 2, 6 and 2", made.Load(), refused.Load(),
			len(bucket.Keys()))
	}
	s = files.New(files.Options{Store: db, Contents: bucket, Quota: func(context.Context, berth.ProjectID,
		int64) error {
		return berth.Errorf(berth.CodeRateLimited, "full")
	}})
	if _, err := s.Create(t.Context(), mine, files.CreateRequest{Filename: "a"},
		failing{errors.New("read")}); berth.ErrorCode(err) != berth.CodeRateLimited {
		t.Errorf("got %v, want a refusal before a byte is read", err)
	}
}

// The bytes in the bucket cannot be read without the object's key.
func TestSealed(t *testing.T) {
	s, bucket, db := open(t)
	text := strings.Repeat("canary-in-a-coal-mine ", 10_000)
	f, err := s.Create(t.Context(), mine, files.CreateRequest{Filename: "a"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	at := "proj_mine/" + string(f.ID)
	stored := bucket.Get(at)
	if len(stored) < len(text) || strings.Contains(string(stored), "canary") {
		t.Errorf("%d bytes are stored of %d, in the clear %t", len(stored), len(text), strings.Contains(string(stored),
			"canary"))
	}
	// The reader can seek.
	r, _, err := s.Open(t.Context(), mine, f.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := iotest.TestReader(r, []byte(text)); err != nil {
		t.Error(err)
	}
	// Changed bytes are not returned.
	stored[70_000] ^= 1
	bucket.Put(at, stored)
	changed, _, err := s.Open(t.Context(), mine, f.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer changed.Close()
	if got, err := io.ReadAll(changed); !errors.Is(err, seal.ErrBroken) || len(got) != 64<<10 {
		t.Errorf("changed bytes: got %d bytes, %v, want those before the change and %v", len(got), err, seal.ErrBroken)
	}
	if _, k, err := db.GetFile(t.Context(), theirs, f.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("another project's key: got %x, %v", k, err)
	}
	// Files that an earlier version stored unencrypted are readable.
	if err := db.CreateFile(t.Context(), mine, &berth.File{ID: "file-old", Bytes: 3}, nil); err != nil {
		t.Fatal(err)
	}
	bucket.Put("proj_mine/file-old", []byte("old"))
	old, _, err := s.Open(t.Context(), mine, "file-old")
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if got, err := io.ReadAll(old); string(got) != "old" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
