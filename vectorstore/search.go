package vectorstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/vectorstore/index"
)

// A Query is a search.
type Query struct {
	Queries []string
	Limit   int     // of results
	Filter  *Filter // nil accepts all files
	Ranking berth.RankingOptions
}

// weights returns the weights of the two rankings.
func (q *Query) weights() berth.HybridSearch {
	if q.Ranking.HybridSearch != nil {
		return *q.Ranking.HybridSearch
	}
	return berth.HybridSearch{EmbeddingWeight: 1, TextWeight: 1}
}

// A Results are the results of a search, the best first.
type Results struct {
	Search   string // berth.SearchBM25, SearchHybrid or SearchVector
	Degraded bool   // the Embedder failed, so that the search was by words only
	List     []berth.FileSearchResult
}

const (
	// candidates are the best hits of each ranking that a hybrid search fuses.
	candidates = 100
	// fusion is the constant of reciprocal rank fusion, as in its first publication.
	fusion = 60
)

// A hit is a matching passage with its score.
type hit struct {
	store  berth.VectorStoreID
	place  place
	record *record
	score  float64
}

// Search searches vector stores. If an Embedder is configured and one of the stores has
// vectors of its model, the rankings by words and by vectors are fused, unless the weight of
// one is 0. If the Embedder fails, the search is by words only.
func (s *Service) Search(ctx context.Context, p berth.ProjectID, ids []berth.VectorStoreID, q Query) (*Results, error) {
	out := &Results{Search: berth.SearchBM25}
	embeddable := false
	for _, id := range ids {
		v, err := s.active(ctx, p, id)
		if err != nil {
			return nil, err
		}
		if err := s.touch(ctx, p, v); err != nil {
			return nil, err
		}
		shelf, err := s.shelves.load(ctx, p, id)
		if err != nil {
			return nil, err
		}
		embeddable = embeddable || shelf.has(s.vectors.model())
	}
	weights := q.weights()
	var embedded [][]float32
	if embeddable && weights.EmbeddingWeight > 0 {
		var err error
		if embedded, err = s.vectors.queries(ctx, p, q.Queries); err != nil {
			return nil, err
		}
		out.Degraded = embedded == nil
	}
	switch {
	case embedded != nil && weights.TextWeight > 0:
		out.Search = berth.SearchHybrid
	case embedded != nil:
		out.Search = berth.SearchVector
	}
	var all []hit
	for _, id := range ids {
		for n, query := range q.Queries {
			var vector []float32
			if embedded != nil {
				vector = embedded[n]
			}
			hits, err := s.searchOne(ctx, p, id, query, vector, q)
			if err != nil {
				return nil, err
			}
			all = append(all, hits...)
		}
	}
	var err error
	out.List, err = s.results(ctx, p, best(all), q)
	return out, err
}

// searchOne searches a store, whose index may have been dropped since it was built.
func (s *Service) searchOne(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID, query string,
	vector []float32, q Query) ([]hit, error) {
	for {
		shelf, err := s.shelves.indexed(ctx, p, id)
		if err != nil {
			return nil, err
		}
		hits, err := shelf.search(ctx, query, vector, q)
		if errors.Is(err, errDropped) && ctx.Err() == nil {
			continue
		}
		for i := range hits {
			hits[i].store = id
		}
		return hits, err
	}
}

// errDropped means that a store's index is not in memory.
var errDropped = errors.New("index was dropped")

// best sorts hits by score. Of several for one passage it keeps the best.
func best(all []hit) []hit {
	slices.SortStableFunc(all, func(a, b hit) int { return cmp.Compare(b.score, a.score) })
	type passage struct {
		store berth.VectorStoreID
		place place
	}
	seen := map[passage]bool{}
	return slices.DeleteFunc(all, func(f hit) bool {
		at := passage{f.store, f.place}
		was := seen[at]
		seen[at] = true
		return was
	})
}

// search returns the passages that one query finds, with scores from 0 to 1.
func (f *shelf) search(ctx context.Context, query string, vector []float32, q Query) ([]hit, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.index == nil {
		return nil, errDropped
	}
	hits, err := f.hits(ctx, query, vector, q)
	out := make([]hit, len(hits))
	for i, h := range hits {
		at := f.places[h.Key]
		out[i] = hit{place: at, record: f.files[at.file], score: h.Score}
	}
	return out, err
}

// hits returns the hits of one query. The caller must hold mu.
func (f *shelf) hits(ctx context.Context, query string, vector []float32, q Query) ([]index.Hit, error) {
	var accept func(int64) bool
	if q.Filter != nil {
		accepted := map[berth.FileID]bool{}
		for id, r := range f.files {
			accepted[id] = q.Filter.accepts(r.File.Attributes)
		}
		accept = func(key int64) bool { return accepted[f.places[key].file] }
	}
	if vector == nil {
		hits, err := f.index.Text(ctx, query, q.Limit, accept)
		return f.ranked(hits, q.Limit), err
	}
	weights := q.weights()
	var byText []index.Hit
	if weights.TextWeight > 0 {
		var err error
		if byText, err = f.index.Text(ctx, query, candidates, accept); err != nil {
			return nil, err
		}
	}
	byVector := f.index.Vector(vector, candidates, accept)
	hits := fuse(f.ranked(byText, candidates), f.ranked(byVector, candidates), weights)
	return f.ranked(hits, len(hits)), nil
}

// ranked sorts hits by score and returns the first of them. Hits of one score are in the order
// of their files' ids and of the text: the order of keys depends on which file was read first.
func (f *shelf) ranked(hits []index.Hit, limit int) []index.Hit {
	slices.SortFunc(hits, func(a, b index.Hit) int {
		x, y := f.places[a.Key], f.places[b.Key]
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(x.file, y.file), cmp.Compare(x.segment, y.segment),
			cmp.Compare(x.chunk, y.chunk))
	})
	return hits[:min(limit, len(hits))]
}

// fuse returns hits of two rankings by reciprocal rank fusion, in no order. A hit that is the
// first of both has the score 1.
func fuse(byText, byVector []index.Hit, weights berth.HybridSearch) []index.Hit {
	total := weights.TextWeight + weights.EmbeddingWeight
	if total <= 0 {
		return nil
	}
	scores := map[int64]float64{}
	for rank, h := range byText {
		scores[h.Key] += weights.TextWeight / float64(fusion+1+rank)
	}
	for rank, h := range byVector {
		scores[h.Key] += weights.EmbeddingWeight / float64(fusion+1+rank)
	}
	hits := make([]index.Hit, 0, len(scores))
	for key, score := range scores {
		hits = append(hits, index.Hit{Key: key, Score: score * (fusion + 1) / total})
	}
	return hits
}

// results reads the text of hits.
func (s *Service) results(ctx context.Context, p berth.ProjectID, hits []hit, q Query) ([]berth.FileSearchResult,
	error) {
	list := []berth.FileSearchResult{}
	type at struct {
		store berth.VectorStoreID
		place place
	}
	segments := map[at]*segment{}
	for _, h := range hits {
		if len(list) == q.Limit || h.score < q.Ranking.ScoreThreshold {
			break
		}
		where, r := h.place, h.record
		key := at{h.store, place{file: where.file, segment: where.segment}}
		seg := segments[key]
		if seg == nil {
			var err error
			if seg, err = s.texts.get(ctx, p, h.store, where.file, where.segment); errors.Is(err, store.ErrNotFound) {
				continue
			} else if err != nil {
				return nil, err
			}
			segments[key] = seg
		}
		if where.chunk >= len(seg.Chunks) {
			return nil, fmt.Errorf("text of file %s has changed", where.file)
		}
		list = append(list, berth.FileSearchResult{FileID: where.file, Filename: r.Filename,
			Attributes: r.File.Attributes,
			Score:      h.score, Text: seg.Chunks[where.chunk]})
	}
	return list, nil
}
