package vectorstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth"
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

// A vectorizer turns texts into vectors with an Embedder, which may be nil. It is safe for concurrent use.
type vectorizer struct {
	embedder Embedder
	log      *slog.Logger
	now      func() time.Time

	mu   sync.Mutex
	rest time.Time // until when the Embedder is not called
}

// model returns the name of the model that makes vectors, or "".
func (e *vectorizer) model() string {
	if e.embedder == nil {
		return ""
	}
	return e.embedder.Model()
}

// vectors calls the Embedder. After a failure it returns errResting for embedRest, so that
// neither searches nor new files wait for it.
func (e *vectorizer) vectors(ctx context.Context, p berth.ProjectID, texts []string) ([][]float32, error) {
	e.mu.Lock()
	resting := e.now().Before(e.rest)
	e.mu.Unlock()
	if resting {
		return nil, errResting
	}
	all, err := e.embedder.Embed(ctx, p, texts)
	if err == nil && len(all) != len(texts) {
		err = fmt.Errorf("got %d vectors for %d texts", len(all), len(texts))
	}
	if err != nil {
		if berth.ErrorCode(err) != berth.CodeInvalid &&
			(ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded)) {
			e.mu.Lock()
			e.rest = e.now().Add(embedRest)
			e.mu.Unlock()
		}
		return nil, fmt.Errorf("embed text: %w", err)
	}
	for _, v := range all {
		normalize(v)
	}
	return all, nil
}

// queries returns the vectors of queries, or nil if the Embedder fails.
func (e *vectorizer) queries(ctx context.Context, p berth.ProjectID, queries []string) ([][]float32, error) {
	bounded, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	all, err := e.vectors(bounded, p, queries)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil && !errors.Is(err, errResting) {
		e.log.Warn("failed to embed query; searching by words only", "err", err)
	}
	return all, nil
}

// embed adds vectors to a segment.
func (e *vectorizer) embed(ctx context.Context, p berth.ProjectID, seg *segment) error {
	var all [][]float32
	size := 0
	for first := 0; first < len(seg.Chunks); first += embedBatch {
		some, err := e.embedTexts(ctx, p, seg.Chunks[first:min(first+embedBatch, len(seg.Chunks))])
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
func (e *vectorizer) embedTexts(ctx context.Context, p berth.ProjectID, texts []string) ([][]float32, error) {
	all, err := e.vectors(ctx, p, texts)
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
		return e.embedTexts(ctx, p, []string{string(half)})
	}
	middle := len(texts) / 2
	first, err := e.embedTexts(ctx, p, texts[:middle])
	if err != nil {
		return nil, err
	}
	second, err := e.embedTexts(ctx, p, texts[middle:])
	return append(first, second...), err
}

// embedAll adds vectors to the segments of a file that is being read. If the Embedder
// fails, the segments have none.
func (e *vectorizer) embedAll(ctx context.Context, k jobKey, r *record, segments []*segment) {
	if e.embedder == nil {
		return
	}
	var bytes int64
	for _, seg := range segments {
		if err := e.embed(ctx, k.project, seg); err != nil {
			e.failed(k, err)
			for _, seg := range segments {
				seg.Vectors = nil
			}
			return
		}
		bytes += int64(len(seg.Vectors))
	}
	r.Model = e.model()
	r.File.UsageBytes += bytes
}

// failed logs that a file could not be embedded.
func (e *vectorizer) failed(k jobKey, err error) {
	if !errors.Is(err, errResting) {
		e.log.Warn("failed to embed file of vector store; its words are searched, will retry", "store", k.store,
			"file", k.file, "err", err)
	}
}

// lacks reports whether a file is to be embedded.
func (e *vectorizer) lacks(r *record) bool {
	return e.embedder != nil && r.File.Status == berth.VectorCompleted && r.Model != e.model()
}
