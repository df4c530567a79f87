package image

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/zstd"

	"github.com/berth-run/berth/internal/beneath"
	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/layer"
)

// ErrTooLarge is returned for an image that exceeds a bound.
var ErrTooLarge = layer.ErrTooLarge

// maxWindow bounds the memory for decompressing a layer.
const maxWindow = 128 << 20

// unpack applies the image's layers to root. It checks each layer against its diff ID, the
// digest of the uncompressed archive.
func (a *addRun) unpack(ctx context.Context, root string, diffIDs []v1.Hash) error {
	r, err := beneath.Open(root)
	if err != nil {
		return err
	}
	defer r.Close()
	applier := &layer.Applier{Root: r, Owners: isRoot(), Notes: !isRoot(), Limits: layer.Limits{Bytes: a.max},
		Grow: a.grow}
	left := a.max + a.max/4 // bytes of archives, whose headers come on top of the files
	for i, b := range a.origin.Blobs[1:] {
		a.gauge.step(Unpack, "unpacking "+shortDigest(b.Digest), int64(i), int64(len(diffIDs)))
		if left, err = a.apply(ctx, applier, b, diffIDs[i].String(), left); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("layer %d of %d, %s: %w", i+1, len(diffIDs), b.Digest, err)
		}
	}
	return nil
}

// apply applies one layer of at most left uncompressed bytes. It returns the bytes left after
// it.
func (a *addRun) apply(ctx context.Context, applier *layer.Applier, b Blob, diffID string, left int64) (int64, error) {
	f, err := statefile.Open(blobPath(a.blobs, b.Digest))
	if err != nil {
		return left, err
	}
	defer f.Close()
	plain, err := decompress(until(ctx, f, nil))
	if err != nil {
		return left, err
	}
	defer plain.Close()
	sum := sha256.New()
	in := &io.LimitedReader{R: io.TeeReader(plain, sum), N: left}
	err = applier.Apply(in)
	if err == nil {
		_, err = io.Copy(io.Discard, in) // the digest covers trailing bytes
	}
	if in.N <= 0 {
		return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, a.max)
	}
	if err != nil {
		return left, err
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != diffID {
		return left, fmt.Errorf("uncompressed digest is %s, but the image lists %.80q", got, diffID)
	}
	return in.N, nil
}

// decompress returns the uncompressed content of a layer. It detects the compression from
// the first bytes, because media types are often wrong.
func decompress(r io.Reader) (io.ReadCloser, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	head, _ := in.Peek(4)
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(in)
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		d, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxWindow),
			zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(in), nil
}

func sumOf(text []byte) string {
	sum, _, _ := v1.SHA256(bytes.NewReader(text)) // reading memory cannot fail
	return sum.String()
}

func shortDigest(digest string) string { return digest[:min(len(digest), len("sha256:")+12)] }
