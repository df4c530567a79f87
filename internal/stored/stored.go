// Package stored opens the blobs of a bucket. It tells a blob that is missing or damaged,
// which it reports to the operator and the client, from a fault in reading it.
package stored

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/seal"
)

// Blobs opens the blobs of one bucket.
type Blobs struct {
	Bucket *blob.Bucket
	Noun   string       // what a blob is the content of: "file", "snapshot"
	Log    *slog.Logger // slog.Default if nil
}

// Open opens the blob at a key, which is the content of id and has size bytes. What is not
// a regular file of this size is not opened: a FIFO would hold the reader.
func (b Blobs) Open(ctx context.Context, key, id string, size int64) (*blob.Reader, error) {
	attrs, err := b.Bucket.Attributes(ctx, key)
	if err == nil && attrs.Size != size {
		return nil, b.damaged(id, fmt.Errorf("blob %s has %d bytes, want %d", key, attrs.Size, size))
	}
	var r *blob.Reader
	if err == nil {
		r, err = b.Bucket.NewReader(ctx, key, nil)
	}
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, b.damaged(id, fmt.Errorf("open blob: %w", err))
	}
	if err != nil {
		return nil, fmt.Errorf("open content of %s: %w", id, err)
	}
	return r, nil
}

// damaged logs that the content of id is not what was written, and returns the error for
// the client.
func (b Blobs) damaged(id string, err error) error {
	log := b.Log
	if log == nil {
		log = slog.Default()
	}
	log.Error("stored content is missing or damaged", b.Noun, id, "err", err)
	return &berth.Error{Code: berth.CodeCorrupt, Err: err,
		Message: fmt.Sprintf("The content of %s '%s' is missing or damaged on this server. Its operator can restore it from a backup.", b.Noun, id)}
}

// Reader returns a reader of r, which opens the sealed content of id. Its error for content
// that is not what was written is that of the client; it is logged once.
func (b Blobs) Reader(id string, r io.Reader) io.Reader { return &reader{blobs: b, id: id, r: r} }

type reader struct {
	blobs Blobs
	id    string
	r     io.Reader
	err   error // of damage
}

func (r *reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.r.Read(p)
	if errors.Is(err, seal.ErrBroken) || errors.Is(err, io.ErrUnexpectedEOF) {
		r.err = r.blobs.damaged(r.id, err)
		err = r.err
	}
	return n, err
}
