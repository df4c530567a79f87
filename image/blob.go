package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-run/berth/internal/statefile"
)

// A Blob is content that is known by its digest: a manifest, a configuration or a
// layer of an image.
type Blob struct {
	MediaType string `json:"media_type,omitempty"`
	Digest    string `json:"digest"` // sha256:…
	Size      int64  `json:"size"`
}

// blobPath returns where the blob with a digest is, once it is there.
func (l *Store) blobPath(digest string) string {
	return filepath.Join(l.dir, "blobs", strings.TrimPrefix(digest, "sha256:"))
}

// hasBlob reports whether the library has a blob whole. Its age begins anew.
func (l *Store) hasBlob(b Blob) bool {
	info, err := os.Stat(l.blobPath(b.Digest))
	if err != nil || info.Size() != b.Size {
		return false
	}
	now := time.Now()
	return os.Chtimes(l.blobPath(b.Digest), now, now) == nil
}

// takeBlob puts content into the library, through a file in dir, if it is what the
// blob's digest and size say. tell is told of each piece.
func (l *Store) takeBlob(ctx context.Context, dir string, b Blob, content io.Reader, tell func(n int)) error {
	f, err := os.CreateTemp(dir, "blob-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already if all went well
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(until(ctx, content, tell), b.Size+1))
	if err != nil {
		return err
	}
	if n < b.Size {
		return fmt.Errorf("%s: %w: it ends after %d of %d bytes", b.Digest, io.ErrUnexpectedEOF, n, b.Size)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); n > b.Size || got != b.Digest {
		return fmt.Errorf("what came for %s is something else", b.Digest)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(f.Name(), l.blobPath(b.Digest))
}

// smallBlob returns the content of a blob that is read as a whole.
func (l *Store) smallBlob(b Blob) ([]byte, error) {
	if b.Size > maxDocument {
		return nil, fmt.Errorf("%s has %d bytes; %d are the most for a manifest or a configuration", b.Digest, b.Size, maxDocument)
	}
	text, err := statefile.ReadFile(l.blobPath(b.Digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: blob %s", ErrNotFound, b.Digest)
	}
	return text, err
}

// readFunc is a reader that is a function.
type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// until reads r until ctx ends and tells of what is read; tell may be nil.
func until(ctx context.Context, r io.Reader, tell func(n int)) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		n, err := r.Read(p)
		if tell != nil {
			tell(n)
		}
		return n, err
	})
}
