// Package files keeps uploaded files: their bytes, sealed, in a bucket, their objects
// in the store.
//
// The bytes of each file have a key of their own, which is kept with the object. When
// the object is gone, nobody can read what may be left of the bytes, on whatever medium.
package files

import (
	"cmp"
	"context"
	"crypto/rand"
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
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/internal/stored"
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

	Log *slog.Logger // of content that is damaged; set before use, slog.Default if nil
}

// New returns a service that keeps objects in st and bytes in bucket.
func New(st store.Files, bucket *blob.Bucket) *Service {
	return &Service{store: st, bucket: bucket, MaxBytes: DefaultMaxBytes}
}

// A CreateRequest describes a file to keep.
type CreateRequest struct {
	ID                  berth.FileID // that it is to have, and no other file has had; empty for a new one
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
	return s.receive(ctx, p, cmp.Or(req.ID, newID()), r, func() (CreateRequest, error) { return req, nil })
}

func newID() berth.FileID { return berth.FileID(berth.NewID(berth.PrefixFile)) }

// Receive is Create for a request that is known when r has been read.
func (s *Service) Receive(ctx context.Context, p berth.ProjectID, r io.Reader, request func() (CreateRequest, error)) (*berth.File, error) {
	return s.receive(ctx, p, newID(), r, request)
}

func (s *Service) receive(ctx context.Context, p berth.ProjectID, id berth.FileID, r io.Reader, request func() (CreateRequest, error)) (*berth.File, error) {
	f := &berth.File{ID: id, Object: "file", CreatedAt: time.Now().Unix(), Status: "processed"}
	if s.Quota != nil {
		if err := s.Quota(ctx, p, 0); err != nil {
			return nil, err // before its bytes are read
		}
	}
	var k [32]byte // whose loss, in a crash, is that of the bytes
	rand.Read(k[:])
	err := s.write(ctx, key(p, f.ID), k, r, func(n int64) error {
		req, err := request()
		if err != nil {
			return err
		}
		f.Bytes, f.Filename, f.Purpose = n, req.Filename, req.Purpose
		if req.ExpiresAfterSeconds > 0 {
			at := f.CreatedAt + req.ExpiresAfterSeconds
			f.ExpiresAt = &at
		}
		return checkName(req.Filename)
	})
	if err != nil {
		return nil, err
	}
	if err := s.create(ctx, p, f, k); err != nil {
		_ = s.bucket.Delete(context.WithoutCancel(ctx), key(p, f.ID))
		return nil, err
	}
	s.Audit.Record(audit.Entry{Action: audit.FileCreated, Project: p, Object: string(f.ID), Bytes: f.Bytes})
	return f, nil
}

// create saves a file's object if there is room for it.
func (s *Service) create(ctx context.Context, p berth.ProjectID, f *berth.File, k [32]byte) error {
	if s.Quota != nil {
		s.book.Lock()
		defer s.book.Unlock()
		if err := s.Quota(ctx, p, f.Bytes); err != nil {
			return err
		}
	}
	return s.store.CreateFile(ctx, p, f, k[:])
}

// write writes what r yields, sealed, if check agrees to so many bytes.
func (s *Service) write(ctx context.Context, key string, k [32]byte, r io.Reader, check func(n int64) error) error {
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	w, err := s.bucket.NewWriter(ctx, key, &blob.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return err
	}
	sealed := seal.NewWriter(w, k)
	n, err := io.Copy(sealed, io.LimitReader(r, s.MaxBytes+1))
	if err == nil && n > s.MaxBytes {
		err = &berth.Error{Code: berth.CodeTooLarge, Param: "file", Message: fmt.Sprintf("The file is larger than %d bytes.", s.MaxBytes)}
	}
	if err == nil {
		err = check(n)
	}
	if err == nil {
		err = sealed.Close()
	}
	if err != nil {
		abort() // nothing is kept of it
	}
	return errors.Join(err, closeUnless(err, w))
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

// Open opens a file's bytes, which can also seek. What is read is what was written, or
// ends with an error. The caller closes them. Bytes that are missing or damaged are
// berth.CodeCorrupt, and logged: at once if they are not as many as they were or the first
// of them differ, else when they are read.
func (s *Service) Open(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File, error) {
	f, err := s.Get(ctx, p, id)
	if err != nil {
		return nil, nil, err
	}
	k, err := s.store.FileKey(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, notFound(id)
	}
	if err != nil {
		return nil, nil, err
	}
	blobs := stored.Blobs{Bucket: s.bucket, Noun: "file", Log: s.Log}
	size := seal.Size(f.Bytes)
	if len(k) != 32 {
		size = f.Bytes
	}
	r, err := blobs.Open(ctx, key(p, id), string(id), size)
	if err != nil {
		return nil, nil, err
	}
	if len(k) != 32 {
		return r, f, nil // an earlier version kept it in the clear
	}
	opened := seal.NewSeeker(r, [32]byte(k), f.Bytes)
	c := &content{blobs.Reader(string(id), opened), opened, r}
	var first [1]byte
	if _, err = c.Read(first[:]); err == nil || errors.Is(err, io.EOF) {
		_, err = c.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return c, f, nil
}

// A content is the bytes of a file.
type content struct {
	io.Reader // of Seeker
	io.Seeker
	io.Closer
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

// expireBatch is how many files are removed at once.
const expireBatch = 100

// Expire removes the files of all projects whose time is up. One that cannot be
// removed does not keep the others.
func (s *Service) Expire(ctx context.Context, now time.Time) error {
	for {
		refs, err := s.store.ExpiredFiles(ctx, now, expireBatch)
		if err != nil {
			return err
		}
		var failed error
		for _, ref := range refs {
			err := s.delete(ctx, ref.Project, ref.File, audit.FileExpired)
			if err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
				failed = errors.Join(failed, err)
			}
		}
		if failed != nil || len(refs) < expireBatch {
			return failed
		}
	}
}

// Sweep removes bytes without an object, which a crash may leave. No file may be in
// the making meanwhile.
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
		_, err = s.store.GetFile(ctx, berth.ProjectID(p), berth.FileID(id))
		if errors.Is(err, store.ErrNotFound) {
			err = s.bucket.Delete(ctx, obj.Key)
		}
		if err != nil {
			log.Warn("a file was not swept", "file", id, "err", err)
		}
	}
}
