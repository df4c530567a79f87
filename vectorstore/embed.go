package vectorstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// An Embedder turns texts into vectors.
type Embedder interface {
	// Model returns the name of the model. Vectors of other models cannot be compared.
	Model() string
	// Embed returns a vector for each text, all of the same length. CodeInvalid means that
	// the model cannot embed one of the texts; other errors may pass.
	Embed(ctx context.Context, p berth.ProjectID, texts []string) ([][]float32, error)
}

const (
	embedBatch   = 64               // texts in one request
	queryTimeout = 10 * time.Second // of the vectors of queries
	embedRest    = 30 * time.Second // without requests after the Embedder failed
	longestRest  = time.Hour        // between two attempts to embed a file
)

// errResting means that the Embedder failed a moment ago.
var errResting = errors.New("the embedding model failed a moment ago")

// errUnembedded means that a file was saved without vectors, to be embedded later.
var errUnembedded = errors.New("the file has no vectors yet")

// vectors calls the Embedder. After a failure it returns errResting for embedRest, so that
// neither searches nor new files wait for it.
func (s *Service) vectors(ctx context.Context, p berth.ProjectID, texts []string) ([][]float32, error) {
	s.mu.Lock()
	resting := s.opts.Now().Before(s.rest)
	s.mu.Unlock()
	if resting {
		return nil, errResting
	}
	all, err := s.opts.Embedder.Embed(ctx, p, texts)
	if err == nil && len(all) != len(texts) {
		err = fmt.Errorf("got %d vectors for %d texts", len(all), len(texts))
	}
	if err != nil {
		if berth.ErrorCode(err) != berth.CodeInvalid &&
			(ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded)) {
			s.mu.Lock()
			s.rest = s.opts.Now().Add(embedRest)
			s.mu.Unlock()
		}
		return nil, fmt.Errorf("embed text: %w", err)
	}
	for _, v := range all {
		normalize(v)
	}
	return all, nil
}

// embedQueries returns the vectors of queries, or nil if the Embedder fails.
func (s *Service) embedQueries(ctx context.Context, p berth.ProjectID, queries []string) ([][]float32, error) {
	bounded, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	all, err := s.vectors(bounded, p, queries)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil && !errors.Is(err, errResting) {
		s.opts.Log.Warn("failed to embed query; searching by words only", "err", err)
	}
	return all, nil
}

// embed adds vectors to a segment.
func (s *Service) embed(ctx context.Context, p berth.ProjectID, seg *segment) error {
	var all [][]float32
	size := 0
	for first := 0; first < len(seg.Chunks); first += embedBatch {
		some, err := s.embedTexts(ctx, p, seg.Chunks[first:min(first+embedBatch, len(seg.Chunks))])
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(some, func(v []float32) bool { return v != nil }) {
			return errors.New("embed text: the model refuses every text")
		}
		all = append(all, some...)
	}
	for _, v := range all {
		size = max(size, len(v))
	}
	for i, v := range all {
		switch len(v) {
		case size:
		case 0:
			all[i] = make([]float32, size) // found by its words only
		default:
			return fmt.Errorf("embed text: vectors of %d and %d dimensions", len(v), size)
		}
	}
	seg.Vectors = pack(all)
	return nil
}

// embedTexts returns vectors of texts. If the model refuses them, it tries each half, so
// that one text does not affect the others, and of a single text the first half, which may
// fit the model's window. A text that cannot be embedded at all has the vector nil.
func (s *Service) embedTexts(ctx context.Context, p berth.ProjectID, texts []string) ([][]float32, error) {
	all, err := s.vectors(ctx, p, texts)
	if berth.ErrorCode(err) != berth.CodeInvalid {
		return all, err
	}
	if len(texts) == 1 {
		const least = 200 // bytes
		half := []rune(texts[0])
		half = half[:len(half)/2]
		if len(texts[0]) < least {
			return [][]float32{nil}, nil
		}
		return s.embedTexts(ctx, p, []string{string(half)})
	}
	middle := len(texts) / 2
	first, err := s.embedTexts(ctx, p, texts[:middle])
	if err != nil {
		return nil, err
	}
	second, err := s.embedTexts(ctx, p, texts[middle:])
	return append(first, second...), err
}

// embedAll adds vectors to the segments of a file that is being read. If the Embedder
// fails, the segments have none.
func (s *Service) embedAll(ctx context.Context, k jobKey, r *record, segments []*segment) {
	if s.opts.Embedder == nil {
		return
	}
	var bytes int64
	for _, seg := range segments {
		if err := s.embed(ctx, k.project, seg); err != nil {
			s.unembedded(k, err)
			for _, seg := range segments {
				seg.Vectors = nil
			}
			return
		}
		bytes += int64(len(seg.Vectors))
	}
	r.Model = s.model()
	r.File.UsageBytes += bytes
}

func (s *Service) unembedded(k jobKey, err error) {
	if !errors.Is(err, errResting) {
		s.opts.Log.Warn("failed to embed file of vector store; its words are searched, will retry", "store", k.store,
			"file", k.file, "err", err)
	}
}

// lacksVectors reports whether a file is to be embedded.
func (s *Service) lacksVectors(r *record) bool {
	return s.opts.Embedder != nil && r.File.Status == berth.VectorCompleted && r.Model != s.model()
}

// embedLater creates jobs for the files of a store that were read without the present
// Embedder. The store's records have just been loaded.
func (s *Service) embedLater(ctx context.Context, p berth.ProjectID, files map[berth.FileID]*record) {
	now := s.opts.Now().Unix()
	var jobs []*store.Object
	for id, r := range files {
		if s.lacksVectors(r) {
			jobs = append(jobs, &store.Object{ObjectKey: jobKey{p, r.File.VectorStoreID, id}.object(), CreatedAt: now,
				ExpiresAt: now, Body: json.RawMessage(`{}`)})
		}
	}
	for batch := range slices.Chunk(jobs, 500) {
		err := s.opts.Objects.CreateObjects(ctx, p, batch...)
		for i := 0; errors.Is(err, store.ErrExists) && i < len(batch); i++ { // some wait already
			if one := s.opts.Objects.CreateObjects(ctx, p, batch[i]); one != nil && !errors.Is(one, store.ErrExists) {
				err = one
			}
		}
		if err != nil && !errors.Is(err, store.ErrExists) {
			s.opts.Log.Error("failed to schedule embedding; the next start tries again", "project", p, "err", err)
			return
		}
	}
	if len(jobs) > 0 {
		s.signal()
	}
}

// embedFile embeds the stored text of a file that was read before. It fails if the file
// changes while it works.
func (s *Service) embedFile(ctx context.Context, k jobKey) error {
	f, err := s.shelf(ctx, k.project, k.store)
	if err != nil {
		return err
	}
	f.mu.RLock()
	r := f.files[k.file]
	f.mu.RUnlock()
	if r == nil || !s.lacksVectors(r) {
		return nil
	}
	segments := make([]*segment, r.Segments)
	var before, after int64
	for n := range segments {
		if segments[n], err = s.segment(ctx, k.project, k.store, k.file, n); err != nil {
			return err
		}
		before += int64(len(segments[n].Vectors))
		if err := s.embed(ctx, k.project, segments[n]); err != nil {
			return err
		}
		after += int64(len(segments[n].Vectors))
	}
	if err := s.opts.Quota(ctx, k.project, max(0, after-before)); err != nil {
		return err
	}
	return s.saveVectors(ctx, k, f, r, segments)
}

// saveVectors saves the vectors of a file, unless its record is no longer r.
func (s *Service) saveVectors(ctx context.Context, k jobKey, f *shelf, r *record, segments []*segment) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files[k.file] != r {
		return errors.New("the file was changed while it was embedded")
	}
	mixed := *r
	mixed.Model = "" // while the segments may hold vectors of two models
	if err := s.save(ctx, k.project, &mixed); err != nil {
		return err
	}
	f.files[k.file] = &mixed
	done := mixed
	done.Model, done.File.UsageBytes = s.model(), 0
	for n, seg := range segments {
		body, err := json.Marshal(seg)
		if err != nil {
			return fmt.Errorf("encode text of file: %w", err)
		}
		_, err = s.opts.Objects.UpdateObject(ctx, k.project, segmentKey(k.store, k.file, n),
			func(o *store.Object) error {
				o.Body = body
				return nil
			})
		if err != nil {
			return fmt.Errorf("save vectors of file: %w", err)
		}
		for _, c := range seg.Chunks {
			done.File.UsageBytes += int64(len(c))
		}
		done.File.UsageBytes += int64(len(seg.Vectors))
	}
	if err := s.save(ctx, k.project, &done); err != nil {
		return err
	}
	f.files[k.file] = &done
	f.addVectors(k.file, segments)
	return nil
}
