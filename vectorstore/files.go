package vectorstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A FileRequest adds a file to a vector store.
type FileRequest struct {
	FileID           berth.FileID
	ChunkingStrategy *berth.ChunkingStrategy // nil means auto
	Attributes       berth.Attributes
}

// checkFiles returns an error unless all files exist.
func (s *Service) checkFiles(ctx context.Context, p berth.ProjectID, files []FileRequest) error {
	for _, f := range files {
		if _, err := s.opts.Files.Get(ctx, p, f.FileID); err != nil {
			return err
		}
	}
	return nil
}

// AddFile adds a file to a vector store. It is read in the background. A file that is in
// the store already is read again.
func (s *Service) AddFile(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID,
	req FileRequest) (*berth.VectorStoreFile, error) {
	if _, err := s.active(ctx, p, id); err != nil {
		return nil, err
	}
	if err := s.checkFiles(ctx, p, []FileRequest{req}); err != nil {
		return nil, err
	}
	return s.addFile(ctx, p, id, req, "")
}

func (s *Service) addFile(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID, req FileRequest,
	batch berth.FileBatchID) (*berth.VectorStoreFile, error) {
	file, err := s.opts.Files.Get(ctx, p, req.FileID)
	if err != nil {
		return nil, err
	}
	shelf, err := s.shelves.load(ctx, p, id)
	if err != nil {
		return nil, err
	}
	strategy := &berth.ChunkingStrategy{Type: "static",
		Static: &berth.StaticChunking{MaxChunkSizeTokens: defaultMaxChunk, ChunkOverlapTokens: defaultOverlap}}
	if req.ChunkingStrategy != nil && req.ChunkingStrategy.Static != nil {
		strategy = req.ChunkingStrategy
	}
	if req.Attributes == nil {
		req.Attributes = berth.Attributes{}
	}
	now := s.opts.Now().Unix()
	r := &record{Filename: file.Filename, Batch: batch,
		File: berth.VectorStoreFile{ID: file.ID, Object: "vector_store.file", CreatedAt: now,
			VectorStoreID: id, Status: berth.VectorInProgress, ChunkingStrategy: strategy, Attributes: req.Attributes}}
	shelf.mu.Lock()
	defer shelf.mu.Unlock()
	old := shelf.files[file.ID]
	if old == nil && len(shelf.files) >= maxFiles {
		return nil, berth.Errorf(berth.CodeInvalid,
			"Vector store '%s' has %d files, which is the maximum. Use another one.", id, maxFiles)
	}
	if old != nil {
		r.File.CreatedAt, r.Segments = old.File.CreatedAt, old.Segments
	}
	if err := s.records.create(ctx, p, r, old != nil); err != nil {
		return nil, err
	}
	shelf.files[file.ID] = r
	if err := shelf.unlist(ctx, file.ID); err != nil {
		return nil, err
	}
	s.queue.signal()
	return new(r.File), nil
}

func fileNotFound(id berth.VectorStoreID, file berth.FileID) error {
	return berth.Errorf(berth.CodeNotFound, "No file found with id '%s' in vector store '%s'.", file, id)
}

// File returns a file of a vector store.
func (s *Service) File(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID,
	file berth.FileID) (*berth.VectorStoreFile, error) {
	r, err := s.record(ctx, p, id, file)
	if err != nil {
		return nil, err
	}
	return new(r.File), nil
}

// record returns a copy of the record of a file.
func (s *Service) record(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID, file berth.FileID) (record,
	error) {
	if _, err := s.read(ctx, p, id); err != nil {
		return record{}, err
	}
	shelf, err := s.shelves.load(ctx, p, id)
	if err != nil {
		return record{}, err
	}
	shelf.mu.RLock()
	defer shelf.mu.RUnlock()
	r := shelf.files[file]
	if r == nil {
		return record{}, fileNotFound(id, file)
	}
	return *r, nil
}

// ListFiles returns the files of a vector store, or of a batch of it, in the order of their
// creation. status "" matches any.
func (s *Service) ListFiles(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID, batch berth.FileBatchID,
	status string) ([]*berth.VectorStoreFile, error) {
	if _, err := s.read(ctx, p, id); err != nil {
		return nil, err
	}
	if batch != "" {
		if _, err := s.readBatch(ctx, p, id, batch); err != nil {
			return nil, err
		}
	}
	shelf, err := s.shelves.load(ctx, p, id)
	if err != nil {
		return nil, err
	}
	var files []*berth.VectorStoreFile
	for _, r := range shelf.list() {
		if (batch == "" || r.Batch == batch) && (status == "" || r.File.Status == status) {
			files = append(files, new(r.File))
		}
	}
	return files, nil
}

// UpdateFile replaces the attributes of a file.
func (s *Service) UpdateFile(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID, file berth.FileID,
	attributes berth.Attributes) (*berth.VectorStoreFile, error) {
	if attributes == nil {
		attributes = berth.Attributes{}
	}
	return s.change(ctx, p, id, file, func(r *record) bool {
		r.File.Attributes = attributes
		return true
	})
}

// change changes the record of a file, unless change returns false.
func (s *Service) change(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID, file berth.FileID,
	change func(*record) bool) (*berth.VectorStoreFile, error) {
	if _, err := s.read(ctx, p, id); err != nil {
		return nil, err
	}
	shelf, err := s.shelves.load(ctx, p, id)
	if err != nil {
		return nil, err
	}
	shelf.mu.Lock()
	defer shelf.mu.Unlock()
	old := shelf.files[file]
	if old == nil {
		return nil, fileNotFound(id, file)
	}
	changed := *old
	if change(&changed) {
		if err := s.records.save(ctx, p, &changed); err != nil {
			return nil, err
		}
		shelf.files[file] = &changed
	}
	return new(shelf.files[file].File), nil
}

// RemoveFile removes a file from a vector store. The uploaded file remains.
func (s *Service) RemoveFile(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID, file berth.FileID) error {
	r, err := s.record(ctx, p, id, file)
	if err != nil {
		return err
	}
	s.queue.stop(func(k jobKey) bool { return k == jobKey{p, id, file} })
	shelf, err := s.shelves.load(ctx, p, id)
	if err != nil {
		return err
	}
	shelf.mu.Lock()
	defer shelf.mu.Unlock()
	if err := shelf.unlist(ctx, file); err != nil {
		return err
	}
	if err := s.texts.delete(ctx, p, id, file, r.Segments); err != nil {
		return err
	}
	if err := s.opts.Objects.DeleteObject(ctx, p, jobKey{p, id, file}.object()); err != nil &&
		!errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("remove file %s from vector store: %w", file, err)
	}
	err = s.opts.Objects.DeleteObject(ctx, p, fileKey(id, file))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("remove file %s from vector store: %w", file, err)
	}
	delete(shelf.files, file)
	return nil
}

// Content returns the text of a file.
func (s *Service) Content(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID, file berth.FileID) ([]string,
	error) {
	r, err := s.record(ctx, p, id, file)
	if err != nil {
		return nil, err
	}
	var texts []string
	for n := range r.Segments {
		seg, err := s.texts.get(ctx, p, id, file, n)
		if err != nil {
			return nil, err
		}
		texts = append(texts, seg.Chunks...)
	}
	return texts, nil
}

// A storedBatch is the stored form of a batch. Its status and counts follow from its files,
// and from those that were removed from the store since.
type storedBatch struct {
	Batch berth.FileBatch `json:"batch"`
	Files []berth.FileID  `json:"files"`
}

// CreateBatch adds files to a vector store.
func (s *Service) CreateBatch(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID,
	files []FileRequest) (*berth.FileBatch, error) {
	if _, err := s.active(ctx, p, id); err != nil {
		return nil, err
	}
	if err := s.checkFiles(ctx, p, files); err != nil {
		return nil, err
	}
	b := storedBatch{Batch: berth.FileBatch{ID: berth.FileBatchID(berth.NewID(berth.PrefixFileBatch)),
		Object:    "vector_store.files_batch",
		CreatedAt: s.opts.Now().Unix(), VectorStoreID: id, Status: berth.VectorInProgress}}
	for _, f := range files {
		b.Files = append(b.Files, f.FileID)
	}
	body, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode file batch: %w", err)
	}
	if err := s.opts.Objects.CreateObjects(ctx, p, &store.Object{ObjectKey: batchKey(id, b.Batch.ID),
		CreatedAt: b.Batch.CreatedAt, Body: body}); err != nil {
		return nil, fmt.Errorf("create file batch: %w", err)
	}
	for _, f := range files {
		if _, err := s.addFile(ctx, p, id, f, b.Batch.ID); err != nil {
			return nil, err
		}
	}
	return s.Batch(ctx, p, id, b.Batch.ID)
}

func batchKey(id berth.VectorStoreID, batch berth.FileBatchID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindVectorBatch, Parent: string(id), ID: string(batch)}
}

func (s *Service) readBatch(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID,
	batch berth.FileBatchID) (*storedBatch, error) {
	o, err := s.opts.Objects.GetObject(ctx, p, batchKey(id, batch))
	if errors.Is(err, store.ErrNotFound) {
		return nil, berth.Errorf(berth.CodeNotFound, "No file batch found with id '%s' in vector store '%s'.",
			batch, id)
	}
	if err != nil {
		return nil, fmt.Errorf("read file batch %s: %w", batch, err)
	}
	b := &storedBatch{}
	if err := json.Unmarshal(o.Body, b); err != nil {
		return nil, fmt.Errorf("decode file batch %s: %w", batch, err)
	}
	return b, nil
}

// Batch returns a batch of a vector store.
func (s *Service) Batch(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID,
	batch berth.FileBatchID) (*berth.FileBatch, error) {
	if _, err := s.read(ctx, p, id); err != nil {
		return nil, err
	}
	b, err := s.readBatch(ctx, p, id, batch)
	if err != nil {
		return nil, err
	}
	shelf, err := s.shelves.load(ctx, p, id)
	if err != nil {
		return nil, err
	}
	shelf.mu.RLock()
	defer shelf.mu.RUnlock()
	out := b.Batch
	for _, f := range b.Files {
		status := berth.VectorCancelled // removed from the store, or added again since
		if r := shelf.files[f]; r != nil && r.Batch == batch {
			status = r.File.Status
		}
		out.FileCounts.Add(status)
	}
	switch {
	case b.Batch.Status == berth.VectorCancelled:
	case out.FileCounts.InProgress > 0:
		out.Status = berth.VectorInProgress
	case out.FileCounts.Failed == out.FileCounts.Total:
		out.Status = berth.VectorFailed
	default:
		out.Status = berth.VectorCompleted
	}
	return &out, nil
}

// CancelBatch stops reading the files of a batch. Those that were read remain.
func (s *Service) CancelBatch(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID,
	batch berth.FileBatchID) (*berth.FileBatch, error) {
	now, err := s.Batch(ctx, p, id, batch)
	if err != nil || now.Status != berth.VectorInProgress {
		return now, err
	}
	b, err := s.readBatch(ctx, p, id, batch)
	if err != nil {
		return nil, err
	}
	s.queue.stop(func(k jobKey) bool { return k.project == p && k.store == id && slices.Contains(b.Files, k.file) })
	for _, f := range b.Files {
		_, err := s.change(ctx, p, id, f, func(r *record) bool {
			if r.Batch != batch || r.File.Status != berth.VectorInProgress {
				return false
			}
			r.File.Status = berth.VectorCancelled
			return true
		})
		if err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
			return nil, err
		}
	}
	_, err = s.opts.Objects.UpdateObject(ctx, p, batchKey(id, batch), func(o *store.Object) error {
		b.Batch.Status = berth.VectorCancelled
		body, err := json.Marshal(b)
		o.Body = body
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cancel file batch %s: %w", batch, err)
	}
	return s.Batch(ctx, p, id, batch)
}

// plainText replaces what JSON and SQLite would not keep.
func plainText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "")
}
