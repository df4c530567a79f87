package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/berth-run/berth/blob"
)

// A section is a part of a bucket: the objects whose keys begin with a prefix. It implements
// blob.Storage.
type section struct {
	bucket *Bucket
	prefix string // ends with a slash
}

// Sizes of uploads. A content of less than partSize bytes is one request; a larger one is sent in
// parts of this size. A service accepts 10,000 parts.
const (
	partSize = 16 << 20
	threads  = 3 // parts in flight, each in memory
)

var errAborted = errors.New("the content was not written to its end")

// Write implements blob.Storage.
func (s *section) Write(ctx context.Context, key string, write func(io.Writer) error) error {
	if err := s.bucket.verify(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	defer w.CloseWithError(errAborted) // if write panics
	uploaded := make(chan error, 1)
	go func() {
		err := s.upload(ctx, s.prefix+key, r)
		r.CloseWithError(err)
		uploaded <- err
	}()
	err := write(w)
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel()
	}
	w.CloseWithError(err)
	if uploading := <-uploaded; err == nil {
		err = uploading // that of an aborted upload would only repeat err
	}
	return err
}

// upload saves what it reads from r as an object.
func (s *section) upload(ctx context.Context, key string, r io.Reader) error {
	var first bytes.Buffer // the part in memory grows with the content
	n, err := io.Copy(&first, io.LimitReader(r, partSize))
	if err != nil {
		return err
	}
	opts := s.bucket.put("application/octet-stream")
	if n < partSize {
		return s.bucket.putWhole(ctx, key, first.Bytes(), opts)
	}
	opts.PartSize, opts.ConcurrentStreamParts, opts.NumThreads = partSize, true, threads
	_, err = s.bucket.client.PutObject(ctx, s.bucket.at.bucket, key, io.MultiReader(&first, r), -1, opts)
	return s.bucket.translate(ctx, err)
}

// Size implements blob.Storage.
func (s *section) Size(ctx context.Context, key string) (int64, error) {
	if err := s.bucket.verify(ctx); err != nil {
		return 0, err
	}
	info, err := s.bucket.client.StatObject(ctx, s.bucket.at.bucket, s.prefix+key, minio.StatObjectOptions{})
	if apiCode(err) == minio.NoSuchKey { // the answer has no body that tells a key from a bucket
		if exists, failed := s.bucket.client.BucketExists(ctx, s.bucket.at.bucket); failed != nil {
			err = failed
		} else if !exists {
			err = minio.ErrorResponse{Code: minio.NoSuchBucket, StatusCode: 404}
		}
	}
	return info.Size, s.bucket.translate(ctx, err)
}

// Remove implements blob.Storage. S3 does not report that an object does not exist.
func (s *section) Remove(ctx context.Context, key string) error {
	if err := s.bucket.verify(ctx); err != nil {
		return err
	}
	return s.bucket.translate(ctx, s.bucket.client.RemoveObject(ctx, s.bucket.at.bucket, s.prefix+key,
		minio.RemoveObjectOptions{}))
}

// All implements blob.Storage. It does not include objects that are being written.
func (s *section) All(ctx context.Context) iter.Seq2[blob.Stored, error] {
	return func(yield func(blob.Stored, error) bool) {
		if err := s.bucket.verify(ctx); err != nil {
			yield(blob.Stored{}, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx) // ends the listing
		defer cancel()
		ctx, pages := newListing(ctx)
		last := ""
		for o := range s.bucket.client.ListObjectsIter(ctx, s.bucket.at.bucket,
			minio.ListObjectsOptions{Prefix: s.prefix, Recursive: true}) {
			if err := s.bucket.translate(ctx, o.Err); err != nil {
				yield(blob.Stored{}, err)
				return
			}
			pages.found()
			key, ok := strings.CutPrefix(o.Key, s.prefix)
			if !ok {
				yield(blob.Stored{}, fmt.Errorf("list %s of %s: the service lists the key %q", s.prefix, s.bucket, o.Key))
				return
			}
			if o.Key == last { // a listing without an end
				yield(blob.Stored{}, fmt.Errorf("list %s of %s: the service lists %q again", s.prefix, s.bucket, o.Key))
				return
			}
			last = o.Key
			if !fs.ValidPath(key) || key == "." { // nothing that this server has written
				continue
			}
			if !yield(blob.Stored{Key: key, Size: o.Size, Written: o.LastModified}, nil) {
				return
			}
		}
	}
}

// Open implements blob.Storage.
func (s *section) Open(ctx context.Context, key string) (io.ReadSeekCloser, error) {
	if err := s.bucket.verify(ctx); err != nil {
		return nil, err
	}
	r := &reader{ctx: ctx, section: s, key: s.prefix + key}
	if err := r.request(); err != nil {
		return nil, err
	}
	return r, nil
}

// A reader reads an object. A read after a seek sends a request for the rest of the object.
type reader struct {
	ctx     context.Context
	section *section
	key     string

	body   io.ReadCloser // nil: to be requested at the next read
	offset int64         // of the next read
	size   int64         // of the object in bytes
	etag   string
}

// request requests the object from the offset on.
func (r *reader) request() error {
	var opts minio.GetObjectOptions
	if r.offset > 0 {
		if err := errors.Join(opts.SetRange(r.offset, 0), opts.SetMatchETag(r.etag)); err != nil {
			return err
		}
	}
	b := r.section.bucket
	body, info, _, err := b.core().GetObject(r.ctx, b.at.bucket, r.key, opts)
	if err != nil {
		return b.translate(r.ctx, err)
	}
	if r.offset == 0 {
		r.size, r.etag = info.Size, info.ETag
	}
	r.body = body
	return nil
}

func (r *reader) Read(p []byte) (int, error) {
	if r.body == nil {
		if r.offset >= r.size {
			return 0, io.EOF
		}
		if err := r.request(); err != nil {
			return 0, err
		}
	}
	n, err := r.body.Read(p)
	r.offset += int64(n)
	return n, err
}

func (r *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.offset
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek to %d in %s", offset, r.key)
	}
	if offset == r.offset {
		return offset, nil
	}
	r.offset = offset
	return offset, r.Close()
}

// Close closes the connection, unless it was read to its end.
func (r *reader) Close() error {
	if r.body == nil {
		return nil
	}
	defer func() { r.body = nil }()
	return r.body.Close()
}
