package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"

	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/blob/blobtest"
	"github.com/berth-run/berth/blob/remote"
	"github.com/berth-run/berth/internal/s3test"
)

func section(t *testing.T, url string) blob.Storage {
	t.Helper()
	at, err := remote.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	b, err := remote.Open(remote.Options{At: at, Owner: "state_1", Claim: true})
	if err != nil {
		t.Fatal(err)
	}
	return b.Section("files")
}

// There and back, each time twice: the second copy finds all contents. A content that was changed
// or lost in the target is copied again.
func TestCopy(t *testing.T) {
	server := s3test.Start(t)
	noise := make([]byte, 20<<20) // sent in parts
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	contents := map[string][]byte{"proj_a/file-large": noise, "proj_a/empty": {}}
	for i := range 30 {
		contents[fmt.Sprintf("proj_%d/file-%d", i%3, i)] = noise[i : 1000*i+i]
	}
	from, between, to := blobtest.New(t), section(t, server.Bucket("one", "prefix=p")), blobtest.New(t)
	for key, content := range contents {
		from.Put(key, content)
	}
	n := len(contents)
	expect := func(what string, from, to blob.Storage, copied, skipped int) {
		t.Helper()
		r, err := Copy(t.Context(), from, to)
		if err != nil || r.Copied != copied || r.Skipped != skipped || r.Gone != 0 {
			t.Errorf("%s: got %+v, %v, want %d copied, %d skipped", what, r, err, copied, skipped)
		}
	}
	expect("to the bucket", from, between, n, 0)
	expect("to the bucket again", from, between, 0, n)
	// of the same size
	for path, content := range map[string]string{"proj_1/file-1": "x", "proj_a/file-large": string(noise[1:]) + "x"} {
		if path == "proj_1/file-1" {
			content = string(bytes.Repeat([]byte("x"), len(contents[path])))
		}
		err := between.Write(t.Context(), path, func(w io.Writer) error {
			_, err := io.WriteString(w, content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := between.Remove(t.Context(), "proj_2/file-2"); err != nil {
		t.Fatal(err)
	}
	expect("to a bucket with damages", from, between, 3, n-3)
	expect("to another bucket", between, section(t, server.Bucket("two")), n, 0)
	expect("to a directory", between, to, n, 0)
	expect("to the directory again", between, to, 0, n)
	for key, want := range contents {
		if got := to.Get(key); !bytes.Equal(got, want) {
			t.Errorf("%s: got %d bytes, want %d", key, len(got), len(want))
		}
	}
	server.Stop()
	if _, err := Copy(t.Context(), from, between); err == nil {
		t.Error("a copy to a bucket that is down succeeded")
	}
}

// A content that is deleted during the copy is counted. One that is cut is an error.
func TestCopyOfChanging(t *testing.T) {
	from, to := blobtest.New(t), blobtest.New(t)
	for i := range 100 {
		from.Put(fmt.Sprintf("p/f%02d", i), []byte("content"))
	}
	if _, _, err := one(t.Context(), from, to, "p/none"); !errors.Is(err, errGone) {
		t.Errorf("a content that is gone: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Copy(ctx, from, to); !errors.Is(err, context.Canceled) {
		t.Errorf("a copy that was cancelled: got %v", err)
	}
	r, err := Copy(t.Context(), from, to)
	if err != nil || r.Copied+r.Skipped != 100 {
		t.Errorf("got %+v, %v", r, err)
	}
	if err := verify(t.Context(), to, "p/f00", []byte("the sum of another content")); err == nil {
		t.Error("a damaged copy was verified")
	}
	if got := to.Get("p/f00"); string(got) != "content" {
		t.Errorf("got %q", got)
	}
}

// deletedLate deletes a content between its opening and a call of its reader, as happens with a
// bucket: its Open sends no request.
type deletedLate struct {
	blob.Storage
	at string // seek or read
}

type lateReader struct {
	io.ReadSeekCloser
	at string
}

func (d deletedLate) Open(ctx context.Context, key string) (io.ReadSeekCloser, error) {
	r, err := d.Storage.Open(ctx, key)
	return lateReader{r, d.at}, err
}

func (r lateReader) Seek(offset int64, whence int) (int64, error) {
	if r.at == "seek" {
		return 0, fmt.Errorf("request: %w", fs.ErrNotExist)
	}
	return r.ReadSeekCloser.Seek(offset, whence)
}

func (r lateReader) Read([]byte) (int, error) { return 0, fmt.Errorf("request: %w", fs.ErrNotExist) }

// A content that is deleted while it is read is gone, too.
func TestCopyOfDeleted(t *testing.T) {
	for _, at := range []string{"seek", "read"} {
		from, to := blobtest.New(t), blobtest.New(t)
		from.Put("p/f", []byte("content"))
		if r, err := Copy(t.Context(), deletedLate{from, at}, to); err != nil || r.Gone != 1 || r.Copied != 0 {
			t.Errorf("%s: got %+v, %v", at, r, err)
		}
		if _, err := to.Size(t.Context(), "p/f"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the target has the content: %v", at, err)
		}
	}
}

// An endless is a storage whose contents never end, whatever size it says.
type endless struct{ blob.Storage }

func (e endless) Open(ctx context.Context, key string) (io.ReadSeekCloser, error) {
	r, err := e.Storage.Open(ctx, key)
	return endlessReader{r}, err
}

type endlessReader struct{ io.ReadSeekCloser }

func (endlessReader) Read(p []byte) (int, error) { return len(p), nil }

// A counted is a storage that counts the bytes written to it.
type counted struct {
	blob.Storage
	bytes *int64
}

func (c counted) Write(ctx context.Context, key string, write func(io.Writer) error) error {
	return c.Storage.Write(ctx, key, func(w io.Writer) error {
		return write(io.MultiWriter(w, countedWriter{c.bytes}))
	})
}

type countedWriter struct{ bytes *int64 }

func (c countedWriter) Write(p []byte) (int, error) {
	if *c.bytes += int64(len(p)); *c.bytes > 1<<20 {
		return 0, errors.New("the disk is full")
	}
	return len(p), nil
}

func TestCopyOfEndless(t *testing.T) {
	from, err1 := blob.OpenDirectory(t.TempDir())
	to, err2 := blob.OpenDirectory(t.TempDir())
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	err := from.Write(t.Context(), "p/a", func(w io.Writer) error {
		_, err := io.WriteString(w, "short")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var bytes int64
	_, err = Copy(t.Context(), endless{from}, counted{to, &bytes})
	if err == nil || bytes > int64(len("short"))+1 {
		t.Errorf("%d bytes were written, %v", bytes, err)
	}
}
