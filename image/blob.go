package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/berth-run/berth/internal/statefile"
)

// A Blob is content addressed by its digest: a manifest, a configuration or a layer of an
// image.
type Blob struct {
	MediaType string `json:"media_type,omitempty"`
	Digest    string `json:"digest"` // sha256:…
	Size      int64  `json:"size"`
}

// blobPath returns the path at which a blob is stored.
func (l *Store) blobPath(digest string) string {
	return blobPath(filepath.Join(l.dir, "blobs"), digest)
}

// blobPath returns the path of a blob in a directory of blobs.
func blobPath(dir, digest string) string {
	return filepath.Join(dir, strings.TrimPrefix(digest, "sha256:"))
}

// hasBlob reports whether the store has all of a blob. If so, it resets the blob's age.
func (l *Store) hasBlob(b Blob) bool {
	info, err := os.Stat(l.blobPath(b.Digest))
	if err != nil || info.Size() != b.Size {
		return false
	}
	now := time.Now()
	return os.Chtimes(l.blobPath(b.Digest), now, now) == nil
}

// writeBlob stores content as a blob. It returns an error unless digest and size match b's. It calls
// progress, if not nil, with the length of each read, and returns its error.
func (a *addRun) writeBlob(ctx context.Context, b Blob, content io.Reader, progress func(n int) error) error {
	f, err := os.CreateTemp(a.dir, "blob-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails harmlessly after the rename
	defer f.Close()
	sum, n, err := v1.SHA256(io.TeeReader(io.LimitReader(until(ctx, content, progress), b.Size+1), f))
	if err != nil {
		return err
	}
	if n < b.Size {
		return fmt.Errorf("%s: %w: got %d of %d bytes", b.Digest, io.ErrUnexpectedEOF, n, b.Size)
	}
	if n > b.Size || sum.String() != b.Digest {
		return fmt.Errorf("the content received for %s has another digest", b.Digest)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(f.Name(), blobPath(a.blobs, b.Digest))
}

// smallBlob reads a manifest or a configuration from a directory of blobs into memory.
func smallBlob(dir string, b Blob) ([]byte, error) {
	if b.Size > MaxDocument {
		return nil, fmt.Errorf("%s has %d bytes; the limit for a manifest or a configuration is %d", b.Digest, b.Size,
			MaxDocument)
	}
	text, err := statefile.ReadFile(blobPath(dir, b.Digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: blob %s", ErrNotFound, b.Digest)
	}
	return text, err
}

// A readFunc is a function that implements io.Reader.
type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// until returns a reader of r that fails once ctx has ended. It calls progress, if not nil,
// with the length of each read, and fails with its error.
func until(ctx context.Context, r io.Reader, progress func(n int) error) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		n, err := r.Read(p)
		if progress != nil {
			if failed := progress(n); failed != nil {
				return n, failed
			}
		}
		return n, err
	})
}
