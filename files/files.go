// Package files keeps uploaded files: their bytes in a bucket, their objects in
// the store.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/store"
)

// DefaultMaxBytes is the largest file, as the hosted service has it.
const DefaultMaxBytes = 512 << 20

// A Service keeps files. It is safe for concurrent use.
type Service struct {
	store    store.Files
	bucket   *blob.Bucket
	MaxBytes int64 // of one file; set before use

	// Quota returns an error for the client if a project may not store so many more
	// bytes. Set before use; nil is no limit.
	Quota func(ctx context.Context, p berth.ProjectID, bytes int64) error
	Audit *audit.Log // of what is kept and removed; set before use, nil is none
	book  sync.Mutex // held between its answer and the deed
}

// New returns a service that keeps objects in st and bytes in bucket.
func New(st store.Files, bucket *blob.Bucket) *Service {
	return &Service{store: st, bucket: bucket, MaxBytes: DefaultMaxBytes}
}

// A CreateRequest describes a file to keep.
type CreateRequest struct {
	Filename            string
	Purpose             string
	ExpiresAfterSeconds int64 // 0 is never
}

// Create keeps what r yields as a file. Bytes are saved before the object, so
// that an object always has its bytes; r is streamed. Errors about the request
// are *berth.Error.
func (s *Service) Create(ctx context.Context, p berth.ProjectID, req CreateRequest, r io.Reader) (*berth.File, error) {
	if err := checkName(req.Filename); err != nil {
		return nil, err
	}
	f := &berth.File{ID: berth.FileID(berth.NewID(berth.PrefixFile)), Object: "file", CreatedAt: time.Now().Unix(),
		Filename: req.Filename, Purpose: req.Purpose, Status: "processed"}
	if req.ExpiresAfterSeconds > 0 {
		at := f.CreatedAt + req.ExpiresAfterSeconds
		f.ExpiresAt = &at
	}
	if s.Quota != nil {
		if err := s.Quota(ctx, p, 0); err != nil {
			return nil, err // before its bytes are read
		}
	}
	var err error
	if f.Bytes, err = s.write(ctx, key(p, f.ID), r); err != nil {
		return nil, err
	}
	if err := s.create(ctx, p, f); err != nil {
		_ = s.bucket.Delete(context.WithoutCancel(ctx), key(p, f.ID))
		return nil, err
	}
	s.Audit.Record(audit.Entry{Action: audit.FileCreated, Project: p, Object: string(f.ID), Bytes: f.Bytes})
	return f, nil
}

// create saves a file's object if there is room for it.
func (s *Service) create(ctx context.Context, p berth.ProjectID, f *berth.File) error {
	if s.Quota != nil {
		s.book.Lock()
		defer s.book.Unlock()
		if err := s.Quota(ctx, p, f.Bytes); err != nil {
			return err
		}
	}
	return s.store.CreateFile(ctx, p, f)
}

func (s *Service) write(ctx context.Context, key string, r io.Reader) (int64, error) {
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	w, err := s.bucket.NewWriter(ctx, key, &blob.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(w, io.LimitReader(r, s.MaxBytes+1))
	if err == nil && n > s.MaxBytes {
		err = &berth.Error{Code: berth.CodeTooLarge, Param: "file", Message: fmt.Sprintf("The file is larger than %d bytes.", s.MaxBytes)}
	}
	if err != nil {
		abort() // nothing is kept of it
	}
	return n, errors.Join(err, closeUnless(err, w))
}

// closeUnless closes w; after an earlier error its own says nothing new.
func closeUnless(err error, w io.Closer) error {
	cerr := w.Close()
	if err != nil {
		return nil
	}
	return cerr
}

func checkName(name string) error {
	switch {
	case name == "", name == ".", name == "..", path.Base(name) != name, strings.Contains(name, `\`):
		return berth.Invalid("file", "Invalid file name: it must be a name without directories.")
	case len(name) > 255:
		return berth.Invalid("file", "Invalid file name: it is longer than 255 bytes.")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return berth.Invalid("file", "Invalid file name: it contains control characters.")
	}
	return nil
}

func key(p berth.ProjectID, id berth.FileID) string { return string(p) + "/" + string(id) }

// Get returns a file's object.
func (s *Service) Get(ctx context.Context, p berth.ProjectID, id berth.FileID) (*berth.File, error) {
	f, err := s.store.GetFile(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && expired(f) {
		return nil, notFound(id)
	}
	return f, err
}

func expired(f *berth.File) bool { return f.ExpiresAt != nil && *f.ExpiresAt <= time.Now().Unix() }

func notFound(id berth.FileID) error {
	return &berth.Error{Code: berth.CodeNotFound, Param: "id", Message: fmt.Sprintf("No such File object: %s", id)}
}

// List returns one page of files and whether there is more.
func (s *Service) List(ctx context.Context, p berth.ProjectID, purpose string, page store.Page) ([]*berth.File, bool, error) {
	files, more, err := s.store.ListFiles(ctx, p, purpose, page)
	if errors.Is(err, store.ErrNotFound) {
		return nil, false, berth.Invalid("after", "No such File object: %s", page.After)
	}
	return files, more, err
}

// Open opens a file's bytes. The caller closes them.
func (s *Service) Open(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File, error) {
	f, err := s.Get(ctx, p, id)
	if err != nil {
		return nil, nil, err
	}
	r, err := s.bucket.NewReader(ctx, key(p, id), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("the bytes of %s: %w", id, err)
	}
	return r, f, nil
}

// Delete removes a file, object first: bytes without an object are Sweep's.
func (s *Service) Delete(ctx context.Context, p berth.ProjectID, id berth.FileID) error {
	return s.delete(ctx, p, id, audit.FileDeleted)
}

func (s *Service) delete(ctx context.Context, p berth.ProjectID, id berth.FileID, as audit.Action) error {
	if err := s.store.DeleteFile(ctx, p, id); errors.Is(err, store.ErrNotFound) {
		return notFound(id)
	} else if err != nil {
		return err
	}
	if err := s.bucket.Delete(ctx, key(p, id)); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return err
	}
	return s.Audit.Commit(ctx, audit.Entry{Action: as, Project: p, Object: string(id)})
}

// Sweep removes bytes without an object, which a crash may leave, and files whose
// time is up. No file may be in the making meanwhile.
func (s *Service) Sweep(ctx context.Context, log *slog.Logger) error {
	for it := s.bucket.List(nil); ; {
		obj, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		p, id, ok := strings.Cut(obj.Key, "/")
		if !ok {
			continue // not ours
		}
		f, err := s.store.GetFile(ctx, berth.ProjectID(p), berth.FileID(id))
		switch {
		case errors.Is(err, store.ErrNotFound):
			err = s.bucket.Delete(ctx, obj.Key)
		case err == nil && expired(f):
			err = s.delete(ctx, berth.ProjectID(p), f.ID, audit.FileExpired)
		}
		if err != nil {
			log.Warn("a file was not swept", "file", id, "err", err)
		}
	}
}
