// Package uploads receives large files in parts. A part is a sealed blob. When an upload is
// completed, its parts become one file, and are deleted.
package uploads

import (
	"cmp"
	"context"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/blob"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/store"
)

// The limits of uploads, as at OpenAI.
const (
	MaxBytes     = 8 << 30  // of an upload
	MaxPartBytes = 64 << 20 // of a part
	lifetime     = time.Hour
	maxParts     = 10_000
)

// Files stores the complete files; *files.Service implements it.
type Files interface {
	Create(ctx context.Context, p berth.ProjectID, req files.CreateRequest, r io.Reader) (*berth.File, error)
	Get(ctx context.Context, p berth.ProjectID, id berth.FileID) (*berth.File, error)
}

// Options are a Service's parts. Those without a default are required.
type Options struct {
	Objects  store.Objects
	Contents blob.Storage // contains parts only
	Seal     cipher.AEAD  // encrypts the keys of parts; from seal.New
	Files    Files

	// Quota returns an error for the client if storing more bytes would exceed the
	// project's limit. Nil means no limit.
	Quota func(ctx context.Context, p berth.ProjectID, bytes int64) error

	Audit *audit.Log       // nil records nothing
	Log   *slog.Logger     // default slog.Default
	Now   func() time.Time // default time.Now
}

// A Service receives uploads. It is safe for concurrent use. Its errors for clients are
// *berth.Error.
type Service struct {
	opts     Options
	contents *blob.Bucket
	parts    *blob.Collection

	mu   sync.Mutex
	busy map[berth.UploadID]bool // being completed, cancelled or deleted
}

// New returns a service.
func New(opts Options) *Service {
	opts.Log = cmp.Or(opts.Log, slog.Default())
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &Service{opts: opts, contents: blob.NewBucket(opts.Contents, "part", opts.Log),
		busy: map[berth.UploadID]bool{}}
	s.parts = blob.NewCollection(blob.Options{Noun: "part", Records: parts{opts.Objects}, Remove: s.contents.Remove})
	return s
}

// A record is the body of an object of store.KindUpload.
type record struct {
	Upload       berth.Upload `json:"upload"`
	FileID       berth.FileID `json:"file_id"` // of the complete file; chosen immediately, so that a file is made once
	ExpiresAfter int64        `json:"expires_after,omitempty"`
	Parts        int          `json:"parts"`    // received
	Received     int64        `json:"received"` // their bytes, while they are stored
}

// A CreateRequest describes the complete file.
type CreateRequest struct {
	Filename            string
	Purpose             string
	Bytes               int64
	ExpiresAfterSeconds int64 // of the file; 0 means the default of its purpose
}

func key(id berth.UploadID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindUpload, ID: string(id)}
}

// Create starts an upload.
func (s *Service) Create(ctx context.Context, p berth.ProjectID, req CreateRequest) (*berth.Upload, error) {
	if err := files.CheckName("filename", req.Filename); err != nil {
		return nil, err
	}
	if err := files.Check(req.Purpose, req.Filename, req.Bytes); err != nil {
		return nil, err
	}
	if err := s.quota(ctx, p, req.Bytes); err != nil {
		return nil, err
	}
	now := s.opts.Now()
	r := record{FileID: berth.FileID(berth.NewID(berth.PrefixFile)), ExpiresAfter: req.ExpiresAfterSeconds,
		Upload: berth.Upload{ID: berth.UploadID(berth.NewID(berth.PrefixUpload)), Object: "upload", Bytes: req.Bytes,
			CreatedAt: now.Unix(),
			ExpiresAt: now.Add(lifetime).Unix(), Filename: req.Filename, Purpose: req.Purpose,
			Status: berth.UploadPending}}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode upload: %w", err)
	}
	if err := s.opts.Objects.CreateObjects(ctx, p, &store.Object{ObjectKey: key(r.Upload.ID),
		CreatedAt: r.Upload.CreatedAt, ExpiresAt: r.Upload.ExpiresAt, Body: body}); err != nil {
		return nil, fmt.Errorf("save upload: %w", err)
	}
	s.opts.Audit.Record(audit.Entry{Action: audit.UploadCreated, Project: p, Object: string(r.Upload.ID)})
	return &r.Upload, nil
}

func (s *Service) quota(ctx context.Context, p berth.ProjectID, bytes int64) error {
	if s.opts.Quota == nil {
		return nil
	}
	return s.opts.Quota(ctx, p, bytes)
}

// get returns an upload that has not expired.
func (s *Service) get(ctx context.Context, p berth.ProjectID, id berth.UploadID) (*record, error) {
	o, err := s.opts.Objects.GetObject(ctx, p, key(id))
	if errors.Is(err, store.ErrNotFound) || err == nil && o.ExpiresAt <= s.opts.Now().Unix() {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read upload: %w", err)
	}
	return decode(o)
}

func decode(o *store.Object) (*record, error) {
	r := new(record)
	if err := json.Unmarshal(o.Body, r); err != nil {
		return nil, fmt.Errorf("decode upload: %w", err)
	}
	return r, nil
}

func notFound(id berth.UploadID) error {
	return &berth.Error{Code: berth.CodeNotFound, Param: "upload_id",
		Message: fmt.Sprintf("No such Upload object: %s. Uploads expire an hour after their creation.", id)}
}

// update changes the record of an upload.
func (s *Service) update(ctx context.Context, p berth.ProjectID, id berth.UploadID,
	change func(*record) error) (*record, error) {
	var r *record
	_, err := s.opts.Objects.UpdateObject(ctx, p, key(id), func(o *store.Object) (err error) {
		if r, err = decode(o); err != nil {
			return err
		}
		if err = change(r); err != nil {
			return err
		}
		o.Body, err = json.Marshal(r)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(id)
	}
	return r, err
}

// pending returns an error if parts of the upload can no longer be added or completed.
func (r *record) pending() error {
	if r.Upload.Status != berth.UploadPending {
		return berth.Invalid("upload_id", "Upload %s is %s. Create a new upload.", r.Upload.ID, r.Upload.Status)
	}
	return nil
}

// acquire marks an upload as busy. It returns an error if it is busy already.
func (s *Service) acquire(id berth.UploadID) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[id] {
		return nil, berth.Errorf(berth.CodeConflict,
			"Upload %s is being completed or cancelled by another request. Try again when that has ended.", id)
	}
	s.busy[id] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, id)
	}, nil
}

// Cancel cancels an upload and deletes its parts.
func (s *Service) Cancel(ctx context.Context, p berth.ProjectID, id berth.UploadID) (*berth.Upload, error) {
	release, err := s.acquire(id)
	if err != nil {
		return nil, err
	}
	defer release()
	r, err := s.get(ctx, p, id)
	if err != nil {
		return nil, err
	}
	if r.Upload.Status != berth.UploadCancelled { // otherwise a retry, perhaps after a failure below
		if err := r.pending(); err != nil {
			return nil, err
		}
	}
	if _, err := s.opts.Files.Get(ctx, p, r.FileID); err == nil {
		return nil, berth.Invalid("upload_id", "Upload %s is completed. Delete file %s instead.", id, r.FileID)
	} else if berth.ErrorCode(err) != berth.CodeNotFound {
		return nil, fmt.Errorf("find file of upload: %w", err)
	}
	if r, err = s.end(ctx, p, id, berth.UploadCancelled, nil); err != nil {
		return nil, err
	}
	return &r.Upload, nil
}

// end sets the final status of an upload and deletes its parts.
func (s *Service) end(ctx context.Context, p berth.ProjectID, id berth.UploadID, status string, f *berth.File) (*record,
	error) {
	if _, err := s.update(ctx, p, id, func(r *record) error {
		r.Upload.Status, r.Upload.File = status, f
		return nil
	}); err != nil {
		return nil, fmt.Errorf("save end of upload: %w", err)
	}
	if err := s.erase(ctx, p, id, status); err != nil {
		return nil, err
	}
	return s.update(ctx, p, id, func(r *record) error {
		r.Received = 0
		return nil
	})
}

// List returns the ids of up to limit uploads, for Delete.
func (s *Service) List(ctx context.Context, p berth.ProjectID, limit int) ([]berth.UploadID, error) {
	list, _, err := s.opts.Objects.ListObjects(ctx, p, store.KindUpload, "", store.Page{Limit: limit, Ascending: true})
	if err != nil {
		return nil, fmt.Errorf("list uploads: %w", err)
	}
	ids := make([]berth.UploadID, len(list))
	for i, o := range list {
		ids[i] = berth.UploadID(o.ID)
	}
	return ids, nil
}

// Delete deletes an upload with its parts, whatever its status.
func (s *Service) Delete(ctx context.Context, p berth.ProjectID, id berth.UploadID) error {
	return s.delete(ctx, p, id, "deleted")
}

func (s *Service) delete(ctx context.Context, p berth.ProjectID, id berth.UploadID, reason string) error {
	release, err := s.acquire(id)
	if err != nil {
		return err
	}
	defer release()
	if err := s.erase(ctx, p, id, reason); err != nil {
		return err
	}
	if err := s.opts.Objects.DeleteObject(ctx, p, key(id)); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("delete upload: %w", err)
	}
	return nil
}

// Expire deletes the uploads of all projects that have expired by now.
func (s *Service) Expire(ctx context.Context, now time.Time) error {
	const batch = 100
	for {
		refs, err := s.opts.Objects.ExpiredObjects(ctx, store.KindUpload, now, batch)
		if err != nil {
			return fmt.Errorf("list expired uploads: %w", err)
		}
		deleted := 0
		for _, ref := range refs {
			switch err := s.delete(ctx, ref.Project, berth.UploadID(ref.ID), "expired"); {
			case err == nil:
				deleted++
			case berth.ErrorCode(err) != berth.CodeConflict: // otherwise it is being completed
				return err
			}
		}
		if len(refs) < batch || deleted == 0 {
			return nil
		}
	}
}

// Sweep removes the bytes of parts without a record, which a crash may leave. It must not run
// while parts are added.
func (s *Service) Sweep(ctx context.Context) error {
	return s.contents.Sweep(ctx, parts{s.opts.Objects})
}

// StoredBytes returns the size of the parts that a project stores, in bytes.
func StoredBytes(ctx context.Context, objects store.Objects, p berth.ProjectID) (sum int64, err error) {
	page := store.Page{Limit: 1000}
	for {
		list, more, err := objects.ListObjects(ctx, p, store.KindUpload, "", page)
		if err != nil {
			return 0, fmt.Errorf("list uploads: %w", err)
		}
		for _, o := range list {
			r, err := decode(o)
			if err != nil {
				return 0, err
			}
			sum += r.Received
		}
		if !more {
			return sum, nil
		}
		page.After = list[len(list)-1].ID
	}
}

// Collect removes contents without a record that were complete before a time. It may run while
// parts are created, if no creation lasts from before that time.
func (s *Service) Collect(ctx context.Context, before time.Time) error {
	return s.contents.Collect(ctx, parts{s.opts.Objects}, before)
}
