// Package transfer copies contents of blobs from one bucket to another. They are sealed, and stay
// as they are.
package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/blob"
)

// parallel is how many contents are copied concurrently.
const parallel = 8

// A Result counts contents.
type Result struct {
	Copied  int
	Bytes   int64 // of those
	Skipped int   // the target had them
	Gone    int   // deleted during the copy
}

// Copy copies all contents of a bucket to another one. It skips those that the target has already,
// with the same content, so that an interrupted copy can be continued. It verifies each content in
// the target. A content that is deleted during the copy is counted and not copied.
func Copy(ctx context.Context, from, to blob.Storage) (r Result, err error) {
	var mu sync.Mutex
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for content, err := range from.All(within) {
		if within.Err() != nil {
			break
		}
		if err != nil {
			return r, errors.Join(fmt.Errorf("list contents: %w", err), group.Wait())
		}
		group.Go(func() error {
			copied, bytes, err := one(within, from, to, content.Key)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, errGone):
				r.Gone++
				return nil
			case err != nil:
				return fmt.Errorf("copy %s: %w", content.Key, err)
			case copied:
				r.Copied++
				r.Bytes += bytes
			default:
				r.Skipped++
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return r, fmt.Errorf("copy contents: %w", err)
	}
	return r, context.Cause(ctx)
}

// errGone means that the source has no such content any more.
var errGone = errors.New("the content is gone")

// one copies a content unless the target has it.
func one(ctx context.Context, from, to blob.Storage, key string) (copied bool, size int64, err error) {
	is, err := from.Size(ctx, key)
	if err != nil {
		return false, 0, gone(err)
	}
	has, err := to.Size(ctx, key)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, 0, fmt.Errorf("look in the target: %w", err)
	case has == is:
		if equal, err := same(ctx, from, to, key); err != nil || equal {
			return false, 0, err
		}
	}
	sum, size, err := write(ctx, from, to, key)
	if err != nil {
		return false, 0, err
	}
	return true, size, verify(ctx, to, key, sum)
}

// gone returns errGone for the error of a content that does not exist in the source.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errGone
	}
	return err
}

// same reports whether two contents are equal.
func same(ctx context.Context, from, to blob.Storage, key string) (bool, error) {
	want, err := read(ctx, from, key)
	if err != nil {
		return false, gone(err)
	}
	got, err := read(ctx, to, key)
	return bytes.Equal(got, want), err
}

// read returns the SHA-256 sum of a content.
func read(ctx context.Context, b blob.Storage, key string) ([]byte, error) {
	r, err := b.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, r)
	return sum.Sum(nil), errors.Join(err, r.Close())
}

// write copies a content and returns the SHA-256 sum and the size of what was read.
func write(ctx context.Context, from, to blob.Storage, key string) ([]byte, int64, error) {
	r, err := from.Open(ctx, key)
	if err != nil {
		return nil, 0, gone(err)
	}
	defer r.Close()
	want, err := r.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = r.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, 0, gone(err)
	}
	sum, size := sha256.New(), int64(0)
	read := &reading{Reader: r}
	err = to.Write(ctx, key, func(w io.Writer) error {
		size, err = io.Copy(io.MultiWriter(w, sum), io.LimitReader(read, want+1)) // it may never end
		if err == nil && size != want {
			err = fmt.Errorf("read %d bytes, want %d", size, want)
		}
		return err
	})
	if err != nil && errors.Is(read.err, fs.ErrNotExist) { // not an error of the target
		return nil, 0, errGone
	}
	return sum.Sum(nil), size, err
}

// reading records the error of a reader. A bucket sends no request before the first read, so a content
// may turn out to be gone then.
type reading struct {
	io.Reader
	err error
}

func (r *reading) Read(p []byte) (n int, err error) {
	n, err = r.Reader.Read(p)
	r.err = err
	return n, err
}

// verify compares a content with the SHA-256 sum of what was written.
func verify(ctx context.Context, b blob.Storage, key string, want []byte) error {
	got, err := read(ctx, b, key)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if !bytes.Equal(got, want) {
		return errors.New("verify: the copy differs from what was written")
	}
	return nil
}
