package blob

import (
	"context"
	"io"
	"iter"
	"time"
)

// A Storage stores contents by key, a slash-separated path such as "proj_a/file-1". It is safe for
// concurrent use. For a key without a content, Size, Open and Remove return an error that wraps
// fs.ErrNotExist.
type Storage interface {
	// Write saves what write writes, in place of a former content. If write fails or ctx ends,
	// nothing is saved.
	Write(ctx context.Context, key string, write func(io.Writer) error) error

	// Size returns the size of a content in bytes.
	Size(ctx context.Context, key string) (int64, error)

	// Open opens a content for reading at any offset. ctx must outlive the reader.
	Open(ctx context.Context, key string) (io.ReadSeekCloser, error)

	Remove(ctx context.Context, key string) error

	// All yields all contents in the order of their keys. It may include some that are being
	// written. It ends after an error.
	All(ctx context.Context) iter.Seq2[Stored, error]
}

// Stored describes a stored content.
type Stored struct {
	Key     string
	Size    int64     // in bytes
	Written time.Time // when it was complete
}
