package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/seal"
)

// A Bucket holds the contents of blobs of one kind, and nothing else. A missing or damaged
// content is an error with berth.CodeCorrupt for the client, and is logged for the operator.
type Bucket struct {
	storage Storage
	noun    string
	log     *slog.Logger
}

// NewBucket returns a Bucket. noun names a blob in errors, such as "file". If log is nil, it is
// slog.Default.
func NewBucket(storage Storage, noun string, log *slog.Logger) *Bucket {
	if log == nil {
		log = slog.Default()
	}
	return &Bucket{storage: storage, noun: noun, log: log}
}

// Write seals the output of write and saves it as a content. If write fails, nothing is saved.
func (b *Bucket) Write(ctx context.Context, r Ref, key Key, write func(io.Writer) error) error {
	var failed error // of write
	err := b.storage.Write(ctx, r.String(), func(w io.Writer) error {
		sealed := seal.NewWriter(w, key)
		if failed = write(sealed); failed == nil {
			failed = sealed.Close()
		}
		return failed
	})
	if err != nil && failed == nil {
		return fmt.Errorf("write content of %s %s: %w", b.noun, r.ID, err)
	}
	return failed
}

// Size returns the stored size of a content in bytes.
func (b *Bucket) Size(ctx context.Context, r Ref) (int64, error) {
	size, err := b.storage.Size(ctx, r.String())
	if err != nil {
		return 0, fmt.Errorf("measure content of %s %s: %w", b.noun, r.ID, err)
	}
	return size, nil
}

// Open opens a content of stored bytes for sequential reading.
func (b *Bucket) Open(ctx context.Context, r Ref, key Key, stored int64) (io.ReadCloser, error) {
	raw, err := b.open(ctx, r, stored)
	if err != nil {
		return nil, err
	}
	return &content{Reader: b.reader(r, seal.NewReader(raw, key)), Closer: raw}, nil
}

// OpenSeeker opens a content of size plain bytes for reading at any offset. It reads and
// verifies the first byte.
func (b *Bucket) OpenSeeker(ctx context.Context, r Ref, key Key, size int64) (io.ReadSeekCloser, error) {
	raw, err := b.open(ctx, r, seal.Size(size))
	if err != nil {
		return nil, err
	}
	plain := seal.NewSeeker(raw, key, size)
	c := &seekable{content{b.reader(r, plain), raw}, plain}
	var first [1]byte
	if _, err = c.Read(first[:]); err == nil || errors.Is(err, io.EOF) {
		_, err = c.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return c, nil
}

// OpenPlain opens a content of size bytes that an earlier version stored unsealed.
func (b *Bucket) OpenPlain(ctx context.Context, r Ref, size int64) (io.ReadCloser, error) {
	return b.open(ctx, r, size)
}

// open opens the stored content. It accepts only one of this size.
func (b *Bucket) open(ctx context.Context, r Ref, stored int64) (io.ReadSeekCloser, error) {
	size, err := b.storage.Size(ctx, r.String())
	if err == nil && size != stored {
		return nil, b.damaged(r, fmt.Errorf("content %s has %d bytes, want %d", r, size, stored))
	}
	var raw io.ReadSeekCloser
	if err == nil {
		raw, err = b.storage.Open(ctx, r.String())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, b.damaged(r, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open content of %s %s: %w", b.noun, r.ID, err)
	}
	return raw, nil
}

// damaged logs that a content is missing or damaged. It returns the error for the client.
func (b *Bucket) damaged(r Ref, err error) error {
	b.log.Error("stored content is missing or damaged", b.noun, r.ID, "err", err)
	return &berth.Error{Code: berth.CodeCorrupt, Err: err,
		Message: fmt.Sprintf(
			"The content of %s '%s' is missing or damaged on this server. Its operator can restore it from a backup.",
			b.noun, r.ID)}
}

// Remove removes a content. It returns nil if the content does not exist.
func (b *Bucket) Remove(ctx context.Context, r Ref) error { return b.remove(ctx, r.String()) }

func (b *Bucket) remove(ctx context.Context, key string) error {
	if err := b.storage.Remove(ctx, key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove content of %s %s: %w", b.noun, key, err)
	}
	return nil
}

// Sweep removes contents without a record, which a crash may leave. No blob may be created
// during the sweep.
func (b *Bucket) Sweep(ctx context.Context, records Records) error {
	return b.Collect(ctx, records, time.Time{})
}

// Collect removes contents without a record that were complete before a time. Blobs may be created
// during it, if no creation lasts from before that time. A zero time includes all.
func (b *Bucket) Collect(ctx context.Context, records Records, before time.Time) error {
	for content, err := range b.storage.All(ctx) {
		if err != nil {
			return fmt.Errorf("list contents of %ss: %w", b.noun, err)
		}
		if !before.IsZero() && !content.Written.Before(before) {
			continue
		}
		exists, err := records.Exists(ctx, parse(content.Key))
		if err == nil && !exists {
			err = b.remove(ctx, content.Key)
		}
		if err != nil {
			b.log.Warn("failed to sweep content", b.noun, content.Key, "err", err)
		}
	}
	return nil
}

// All returns the blobs that have a content. Some may have no record.
func (b *Bucket) All(ctx context.Context) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		for content, err := range b.storage.All(ctx) {
			if !yield(parse(content.Key), err) {
				return
			}
		}
	}
}

// Totals returns the number of contents and their stored bytes, including those that are being
// written.
func (b *Bucket) Totals(ctx context.Context) (count int, bytes int64, err error) {
	for content, err := range b.storage.All(ctx) {
		if err != nil {
			return 0, 0, err
		}
		count, bytes = count+1, bytes+content.Size
	}
	return count, bytes, nil
}

// parse returns the Ref whose String is key.
func parse(key string) Ref {
	p, id, _ := strings.Cut(key, "/")
	return Ref{berth.ProjectID(p), id}
}

type content struct {
	io.Reader
	io.Closer
}

type seekable struct {
	content
	io.Seeker
}

// reader returns a reader of plain that reports damage as Bucket does, once.
func (b *Bucket) reader(r Ref, plain io.Reader) io.Reader {
	return &reader{bucket: b, ref: r, plain: plain}
}

type reader struct {
	bucket *Bucket
	ref    Ref
	plain  io.Reader
	err    error // the damage
}

func (r *reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.plain.Read(p)
	if errors.Is(err, seal.ErrBroken) || errors.Is(err, io.ErrUnexpectedEOF) {
		r.err = r.bucket.damaged(r.ref, err)
		err = r.err
	}
	return n, err
}
