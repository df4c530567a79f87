// Package vectorstore stores vector stores: collections of files whose text can be searched.
//
// All content is in the store's objects, sealed like the rest: the record of a file, and its
// text in parts of about segmentBytes, each under a key of its own. What a search needs is
// built in memory from these (shelf.go), so a deletion leaves nothing that can be read. A
// worker reads files in the background, in the order in which they were added (ingest.go).
package vectorstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// The defaults of Options, and limits as at OpenAI.
const (
	DefaultMemory   = 512 << 20
	DefaultMaxText  = 32 << 20 // about 5 million tokens, OpenAI's limit, and their overlap
	maxFiles        = 10_000   // in a store
	defaultMaxChunk = 800
	defaultOverlap  = 400
)

// Files opens uploaded files; *files.Service implements it. Errors for clients are
// *berth.Error.
type Files interface {
	Get(ctx context.Context, p berth.ProjectID, id berth.FileID) (*berth.File, error)
	Open(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File, error)
}

// Options are a Service's parts. Those without a default are required.
type Options struct {
	Objects store.Objects
	Files   Files

	// Text returns the text of a file. An Unreadable error means that the file has none.
	Text func(ctx context.Context, name string, content io.Reader) (string, error)

	Embedder Embedder // nil: searches are by words only

	// Quota returns an error for the client if storing more bytes would exceed the
	// project's limit. Nil means no limit.
	Quota func(ctx context.Context, p berth.ProjectID, bytes int64) error

	Memory  int64            // bytes of text whose index is held in memory; default DefaultMemory
	MaxText int              // bytes of a file's text; default DefaultMaxText
	Log     *slog.Logger     // default slog.Default
	Now     func() time.Time // default time.Now
}

// An Unreadable error states for the client why a file cannot be added.
type Unreadable struct {
	Code    string // unsupported_file or invalid_file
	Message string
}

func (e *Unreadable) Error() string { return e.Message }

// A Service stores vector stores. It is safe for concurrent use. Its errors for clients are
// *berth.Error.
type Service struct {
	opts    Options
	queue   *queue
	records *records
	texts   *texts
	vectors *vectorizer
	shelves *shelves
}

// New returns a service. Start makes it read files.
func New(opts Options) *Service {
	opts.Memory, opts.MaxText = cmp.Or(opts.Memory, DefaultMemory), cmp.Or(opts.MaxText, DefaultMaxText)
	opts.Log = cmp.Or(opts.Log, slog.Default())
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Quota == nil {
		opts.Quota = func(context.Context, berth.ProjectID, int64) error { return nil }
	}
	queue := newQueue(opts.Objects, opts.Log, opts.Now)
	texts := &texts{opts.Objects, opts.Now}
	vectors := &vectorizer{embedder: opts.Embedder, log: opts.Log, now: opts.Now}
	return &Service{opts: opts, queue: queue, records: &records{opts.Objects, queue}, texts: texts, vectors: vectors,
		shelves: &shelves{memory: opts.Memory, objects: opts.Objects, texts: texts, vectors: vectors, queue: queue,
			all: map[shelfKey]*shelf{}}}
}

// A CreateRequest describes a vector store.
type CreateRequest struct {
	Name             string
	Description      string
	FileIDs          []berth.FileID
	ExpiresAfter     *berth.VectorExpiry
	ChunkingStrategy *berth.ChunkingStrategy
	Metadata         map[string]string
}

// Create creates a vector store with files.
func (s *Service) Create(ctx context.Context, p berth.ProjectID, req CreateRequest) (*berth.VectorStore, error) {
	now := s.opts.Now().Unix()
	v := &berth.VectorStore{ID: berth.VectorStoreID(berth.NewID(berth.PrefixVectorStore)), Object: "vector_store",
		CreatedAt: now, Name: req.Name,
		Description: req.Description, ExpiresAfter: req.ExpiresAfter, LastActiveAt: &now, Metadata: req.Metadata}
	if v.Metadata == nil {
		v.Metadata = map[string]string{}
	}
	if err := s.opts.Quota(ctx, p, 0); err != nil {
		return nil, err
	}
	files := make([]FileRequest, len(req.FileIDs))
	for i, id := range req.FileIDs {
		files[i] = FileRequest{FileID: id, ChunkingStrategy: req.ChunkingStrategy}
	}
	if err := s.checkFiles(ctx, p, files); err != nil {
		return nil, err
	}
	o := &store.Object{ObjectKey: storeKey(v.ID), CreatedAt: now}
	if err := encodeStore(o, v); err != nil {
		return nil, err
	}
	if err := s.opts.Objects.CreateObjects(ctx, p, o); err != nil {
		return nil, fmt.Errorf("create vector store: %w", err)
	}
	for _, f := range files {
		if _, err := s.addFile(ctx, p, v.ID, f, ""); err != nil {
			return nil, err
		}
	}
	return s.Get(ctx, p, v.ID)
}

func storeKey(id berth.VectorStoreID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindVectorStore, ID: string(id)}
}

// encodeStore sets the body and the expiry of a store's object. The expiry of an expired
// store stays, so that its content is deleted.
func encodeStore(o *store.Object, v *berth.VectorStore) (err error) {
	if v.Status != berth.VectorExpired {
		v.ExpiresAt, o.ExpiresAt = nil, 0
		if e := v.ExpiresAfter; e != nil {
			at := *v.LastActiveAt + int64(e.Days)*24*3600
			v.ExpiresAt, o.ExpiresAt = &at, at
		}
	}
	if o.Body, err = json.Marshal(v); err != nil {
		return fmt.Errorf("encode vector store: %w", err)
	}
	return nil
}

// read returns the stored record of a vector store, without counts.
func (s *Service) read(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID) (*berth.VectorStore, error) {
	o, err := s.opts.Objects.GetObject(ctx, p, storeKey(id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, berth.NotFound("Vector store", id)
	}
	if err != nil {
		return nil, fmt.Errorf("read vector store %s: %w", id, err)
	}
	return decodeStore(o, s.opts.Now())
}

// decodeStore returns a stored vector store as it is at a time.
func decodeStore(o *store.Object, now time.Time) (*berth.VectorStore, error) {
	v := &berth.VectorStore{}
	if err := json.Unmarshal(o.Body, v); err != nil {
		return nil, fmt.Errorf("decode vector store %s: %w", o.ID, err)
	}
	if v.ExpiresAt != nil && *v.ExpiresAt <= now.Unix() {
		v.Status = berth.VectorExpired
	}
	return v, nil
}

// active returns a vector store that has not expired.
func (s *Service) active(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID) (*berth.VectorStore, error) {
	v, err := s.read(ctx, p, id)
	if err == nil && v.Status == berth.VectorExpired {
		err = berth.Errorf(berth.CodeInvalid,
			"Vector store '%s' has expired. Create a new one and add its files again.", id)
	}
	return v, err
}

// Check returns an error for the client unless all vector stores exist and have not expired.
func (s *Service) Check(ctx context.Context, p berth.ProjectID, ids []berth.VectorStoreID) error {
	for _, id := range ids {
		if _, err := s.active(ctx, p, id); err != nil {
			return err
		}
	}
	return nil
}

// Get returns a vector store.
func (s *Service) Get(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID) (*berth.VectorStore, error) {
	v, err := s.read(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return v, s.count(ctx, p, v)
}

// count sets the fields of a store that depend on its files.
func (s *Service) count(ctx context.Context, p berth.ProjectID, v *berth.VectorStore) error {
	if v.Status == berth.VectorExpired {
		return nil
	}
	shelf, err := s.shelves.load(ctx, p, v.ID)
	if err != nil {
		return err
	}
	shelf.mu.RLock()
	defer shelf.mu.RUnlock()
	v.FileCounts, v.UsageBytes, v.Status = berth.FileCounts{}, 0, berth.VectorCompleted
	for _, f := range shelf.files {
		v.FileCounts.Add(f.File.Status)
		v.UsageBytes += f.File.UsageBytes
	}
	if v.FileCounts.InProgress > 0 {
		v.Status = berth.VectorInProgress
	}
	return nil
}

// List returns one page of vector stores and whether there are more.
func (s *Service) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*berth.VectorStore, bool, error) {
	objects, more, err := s.opts.Objects.ListObjects(ctx, p, store.KindVectorStore, "", page)
	if err != nil {
		return nil, false, fmt.Errorf("list vector stores: %w", err)
	}
	list := make([]*berth.VectorStore, len(objects))
	for i, o := range objects {
		if list[i], err = decodeStore(o, s.opts.Now()); err == nil {
			err = s.count(ctx, p, list[i])
		}
		if err != nil {
			return nil, false, err
		}
	}
	return list, more, nil
}

// A Change is a change to a vector store. Nil fields stay.
type Change struct {
	Name         *string
	ExpiresAfter *berth.VectorExpiry
	Never        bool // remove the expiry
	Metadata     map[string]string
}

// Update changes a vector store.
func (s *Service) Update(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID, c Change) (*berth.VectorStore,
	error) {
	err := s.update(ctx, p, id, func(v *berth.VectorStore) {
		if c.Name != nil {
			v.Name = *c.Name
		}
		if c.Never {
			v.ExpiresAfter = nil
		}
		if c.ExpiresAfter != nil {
			v.ExpiresAfter = c.ExpiresAfter
		}
		if c.Metadata != nil {
			v.Metadata = c.Metadata
		}
	})
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, p, id)
}

func (s *Service) update(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID,
	change func(*berth.VectorStore)) error {
	_, err := s.opts.Objects.UpdateObject(ctx, p, storeKey(id), func(o *store.Object) error {
		v, err := decodeStore(o, s.opts.Now())
		if err != nil {
			return err
		}
		change(v)
		return encodeStore(o, v)
	})
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Vector store", id)
	}
	if err != nil {
		return fmt.Errorf("update vector store %s: %w", id, err)
	}
	return nil
}

// activeInterval is the precision of last_active_at, so that not every search writes.
const activeInterval = time.Minute

// touch records that a store was used.
func (s *Service) touch(ctx context.Context, p berth.ProjectID, v *berth.VectorStore) error {
	now := s.opts.Now().Unix()
	if v.LastActiveAt != nil && now-*v.LastActiveAt < int64(activeInterval/time.Second) {
		return nil
	}
	return s.update(ctx, p, v.ID, func(v *berth.VectorStore) { v.LastActiveAt = &now })
}

// Delete deletes a vector store with the text of its files. The files remain.
func (s *Service) Delete(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID) error {
	s.queue.stop(func(k jobKey) bool { return k.project == p && k.store == id })
	err := s.opts.Objects.DeleteObject(ctx, p, storeKey(id))
	s.shelves.drop(p, id)
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Vector store", id)
	}
	if err != nil {
		return fmt.Errorf("delete vector store %s: %w", id, err)
	}
	return nil
}

// Expire deletes the content of the vector stores of all projects that have expired. Their
// records remain, with the status expired.
func (s *Service) Expire(ctx context.Context) error {
	for {
		const batch = 100
		refs, err := s.opts.Objects.ExpiredObjects(ctx, store.KindVectorStore, s.opts.Now(), batch)
		if err != nil {
			return fmt.Errorf("list expired vector stores: %w", err)
		}
		for _, r := range refs {
			if err := s.expire(ctx, r.Project, berth.VectorStoreID(r.ID)); err != nil &&
				berth.ErrorCode(err) != berth.CodeNotFound {
				return err
			}
		}
		if len(refs) < batch {
			return nil
		}
	}
}

func (s *Service) expire(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID) error {
	s.queue.stop(func(k jobKey) bool { return k.project == p && k.store == id })
	shelf, err := s.shelves.load(ctx, p, id)
	if err != nil {
		return err
	}
	for _, f := range shelf.list() {
		if err := s.RemoveFile(ctx, p, id, f.File.ID); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
			return err
		}
	}
	_, err = s.opts.Objects.UpdateObject(ctx, p, storeKey(id), func(o *store.Object) error {
		v, err := decodeStore(o, s.opts.Now())
		if err == nil {
			err = encodeStore(o, v) // its status is expired
		}
		o.ExpiresAt = 0
		return err
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("expire vector store %s: %w", id, err)
	}
	return nil
}
