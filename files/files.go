// Package files stores uploaded files: sealed blobs whose records are the file objects.
package files

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/store"
)

// DefaultMaxBytes is the default size limit of a file, which is OpenAI's.
const DefaultMaxBytes = 512 << 20

// Options are a Service's parts.
type Options struct {
	Store    store.Files
	Contents blob.Storage // contains files only
	MaxBytes int64        // of one file; default DefaultMaxBytes

	// Quota returns an error for the client if storing more bytes would exceed the
	// project's limit. It admits negative bytes. Nil means no limit.
	Quota func(ctx context.Context, p berth.ProjectID, bytes int64) error

	// Life returns how long a project retains files, which no request makes longer; 0 means without a limit. Nil:
	// no project has a limit.
	Life func(ctx context.Context, p berth.ProjectID) (time.Duration, error)

	Audit *audit.Log   // nil records nothing
	Log   *slog.Logger // default slog.Default
}

// A Service stores files. It is safe for concurrent use. Its errors for clients are
// *berth.Error.
type Service struct {
	opts     Options
	contents *blob.Bucket
	blobs    *blob.Collection
}

// New returns a service.
func New(opts Options) *Service {
	opts.MaxBytes = cmp.Or(opts.MaxBytes, DefaultMaxBytes)
	s := &Service{opts: opts, contents: blob.NewBucket(opts.Contents, "file", opts.Log)}
	s.blobs = blob.NewCollection(blob.Options{Noun: "file", Records: records{opts.Store}, Remove: s.contents.Remove,
		Audit: opts.Audit})
	return s
}

// A CreateRequest describes a file.
type CreateRequest struct {
	ID                  berth.FileID // must be unused; empty means a new id
	Filename            string
	Purpose             string
	ExpiresAfterSeconds int64 // 0 means the default of the purpose, which is never except for batch

	// MaxBytes replaces Options.MaxBytes if it is not 0. Only Create uses it.
	MaxBytes int64
	// Replaces is the size of stored data that the caller deletes once the file exists, such as
	// the parts of an upload. The quota does not count it twice. Only Create uses it.
	Replaces int64
}

// Create stores the bytes of r as a file. It streams r.
func (s *Service) Create(ctx context.Context, p berth.ProjectID, req CreateRequest, r io.Reader) (*berth.File, error) {
	if err := CheckName("file", req.Filename); err != nil {
		return nil, err
	}
	req.ID, req.MaxBytes = cmp.Or(req.ID, newID()), cmp.Or(req.MaxBytes, s.opts.MaxBytes)
	return s.receive(ctx, p, req, r, func() (CreateRequest, error) { return req, nil })
}

func newID() berth.FileID { return berth.FileID(berth.NewID(berth.PrefixFile)) }

// Receive is like Create for a request that is complete only after r has been read.
func (s *Service) Receive(ctx context.Context, p berth.ProjectID, r io.Reader, request func() (CreateRequest,
	error)) (*berth.File, error) {
	return s.receive(ctx, p, CreateRequest{ID: newID(), MaxBytes: s.opts.MaxBytes}, r, request)
}

// receive stores the bytes of r. known has the ID and the limits, request returns the rest.
func (s *Service) receive(ctx context.Context, p berth.ProjectID, known CreateRequest, r io.Reader,
	request func() (CreateRequest, error)) (*berth.File, error) {
	id := known.ID
	f := &berth.File{ID: id, Object: "file", CreatedAt: time.Now().Unix(), Status: "processed"}
	key := blob.NewKey()
	creation := blob.Creation{Ref: ref(p, id),
		Write: func(ctx context.Context) error {
			return s.contents.Write(ctx, ref(p, id), key, func(w io.Writer) error {
				return s.write(w, io.LimitReader(r, known.MaxBytes+1), known.MaxBytes, f, request)
			})
		},
		Save: func(ctx context.Context) error {
			if err := s.shorten(ctx, p, f); err != nil {
				return err
			}
			return s.opts.Store.CreateFile(ctx, p, f, key[:])
		},
		Entry: func() audit.Entry {
			return audit.Entry{Action: audit.FileCreated, Project: p, Object: string(id), Bytes: f.Bytes}
		}}
	if s.opts.Quota != nil {
		creation.Admit = func(ctx context.Context) error {
			more := f.Bytes - known.Replaces
			if more <= 0 && known.Replaces > 0 {
				more = -1 // a project that is full may replace what it stores
			}
			return s.opts.Quota(ctx, p, more)
		}
	}
	if err := s.blobs.Create(ctx, creation); err != nil {
		return nil, err
	}
	return f, nil
}

// shorten sets the expiry of a file to the end of the project's retention, if that comes first.
func (s *Service) shorten(ctx context.Context, p berth.ProjectID, f *berth.File) error {
	if s.opts.Life == nil {
		return nil
	}
	life, err := s.opts.Life(ctx, p)
	if err != nil || life == 0 {
		return err
	}
	if at := f.CreatedAt + int64(life/time.Second); f.ExpiresAt == nil || at < *f.ExpiresAt {
		f.ExpiresAt = &at
	}
	return nil
}

// write copies r, of at most limit bytes, to w and sets the fields of f from the request.
func (s *Service) write(w io.Writer, r io.Reader, limit int64, f *berth.File, request func() (CreateRequest,
	error)) error {
	n, err := io.Copy(w, r)
	if err != nil {
		return err
	}
	if n > limit {
		return &berth.Error{Code: berth.CodeTooLarge, Param: "file",
			Message: fmt.Sprintf("The file is larger than the limit of %d bytes.", limit)}
	}
	req, err := request()
	if err != nil {
		return err
	}
	if err := Check(req.Purpose, req.Filename, n); err != nil {
		return err
	}
	if req.Purpose == PurposeBatch && req.ExpiresAfterSeconds == 0 {
		req.ExpiresAfterSeconds = batchExpiry
	}
	f.Bytes, f.Filename, f.Purpose = n, req.Filename, req.Purpose
	if req.ExpiresAfterSeconds > 0 {
		at := f.CreatedAt + req.ExpiresAfterSeconds
		f.ExpiresAt = &at
	}
	return CheckName("file", req.Filename)
}

// CheckName returns an error for the client, about the field param, if a file may not have the name.
func CheckName(param, name string) error {
	switch {
	case name == "", name == ".", name == "..", path.Base(name) != name, strings.Contains(name, `\`):
		return berth.Invalid(param, "Invalid file name. Expected a name without directories.")
	case len(name) > 255:
		return berth.Invalid(param, "Invalid file name. Expected a name of at most 255 bytes.")
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return berth.Invalid(param, "Invalid file name. Expected valid UTF-8 without control characters.")
	}
	return nil
}

// Get returns a file.
func (s *Service) Get(ctx context.Context, p berth.ProjectID, id berth.FileID) (*berth.File, error) {
	f, _, err := s.opts.Store.GetFile(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && expired(f) {
		return nil, notFound(id)
	}
	return f, err
}

func expired(f *berth.File) bool { return f.ExpiresAt != nil && *f.ExpiresAt <= time.Now().Unix() }

func notFound(id berth.FileID) error {
	return &berth.Error{Code: berth.CodeNotFound, Param: "id", Message: fmt.Sprintf("No such File object: %s", id)}
}

// List returns one page of files and whether there are more.
func (s *Service) List(ctx context.Context, p berth.ProjectID, purpose string, page store.Page) ([]*berth.File, bool,
	error) {
	files, more, err := s.opts.Store.ListFiles(ctx, p, purpose, page)
	if errors.Is(err, store.ErrNotFound) {
		return nil, false, berth.Invalid("after", "No such File object: %s", page.After)
	}
	return files, more, err
}

// Open opens the bytes of a file. The caller must close the reader, which is also an
// io.Seeker if the file is sealed. If bytes are missing or damaged, the error is
// berth.CodeCorrupt: from Open if the size or the first bytes are wrong, otherwise from the
// read of the damaged part.
func (s *Service) Open(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File, error) {
	f, err := s.Get(ctx, p, id)
	if err != nil {
		return nil, nil, err
	}
	_, key, err := s.opts.Store.GetFile(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, notFound(id)
	}
	if err != nil {
		return nil, nil, err
	}
	var content io.ReadCloser
	if len(key) == len(blob.Key{}) {
		content, err = s.contents.OpenSeeker(ctx, ref(p, id), blob.Key(key), f.Bytes)
	} else {
		content, err = s.contents.OpenPlain(ctx, ref(p, id), f.Bytes)
	}
	if err != nil {
		return nil, nil, err
	}
	return content, f, nil
}

// Delete deletes a file.
func (s *Service) Delete(ctx context.Context, p berth.ProjectID, id berth.FileID) error {
	err := s.delete(ctx, ref(p, id), audit.FileDeleted)
	if errors.Is(err, store.ErrNotFound) {
		return notFound(id)
	}
	return err
}

func (s *Service) delete(ctx context.Context, r blob.Ref, action audit.Action) error {
	return s.blobs.Delete(ctx, r, audit.Entry{Action: action, Project: r.Project, Object: r.ID})
}

// Expire deletes the files of all projects that have expired by now.
func (s *Service) Expire(ctx context.Context, now time.Time) error {
	return s.blobs.Expire(ctx, now, func(ctx context.Context, r blob.Ref) error {
		return s.delete(ctx, r, audit.FileExpired)
	})
}

// Sweep removes bytes without a file, which a crash may leave. It must not run while files
// are created.
func (s *Service) Sweep(ctx context.Context) error {
	return s.contents.Sweep(ctx, records{s.opts.Store})
}

func ref(p berth.ProjectID, id berth.FileID) blob.Ref { return blob.Ref{Project: p, ID: string(id)} }

// records adapts the rows of files to records of blobs.
type records struct{ store store.Files }

func (r records) Delete(ctx context.Context, f blob.Ref) error {
	return r.store.DeleteFile(ctx, f.Project, berth.FileID(f.ID))
}

func (r records) Exists(ctx context.Context, f blob.Ref) (bool, error) {
	_, _, err := r.store.GetFile(ctx, f.Project, berth.FileID(f.ID))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (r records) Expired(ctx context.Context, now time.Time, limit int) ([]blob.Ref, error) {
	files, err := r.store.ExpiredFiles(ctx, now, limit)
	refs := make([]blob.Ref, len(files))
	for i, f := range files {
		refs[i] = ref(f.Project, f.File)
	}
	return refs, err
}

// Collect removes contents without a record that were complete before a time. It may run while
// files are created, if no creation lasts from before that time.
func (s *Service) Collect(ctx context.Context, before time.Time) error {
	return s.contents.Collect(ctx, records{s.opts.Store}, before)
}
