package vectorstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/vectorstore/index"
)

// A place is where a passage of the index is stored.
type place struct {
	file    berth.FileID
	segment int
	chunk   int // in the segment
}

// A shelf is what memory holds of one vector store: the records of its files and, after
// the first search, the index of their text.
type shelf struct {
	mu    sync.RWMutex
	files map[berth.FileID]*record

	index  *index.Index // nil until the first search, and after eviction
	places map[int64]place
	keys   map[berth.FileID][]int64 // of the passages of a file
	next   int64
	bytes  int64 // of indexed text
}

// has reports whether a file has vectors of a model.
func (f *shelf) has(model string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, r := range f.files {
		if model != "" && r.Model == model && r.File.Status == berth.VectorCompleted {
			return true
		}
	}
	return false
}

// list returns the records in the order of their creation.
func (f *shelf) list() []*record {
	f.mu.RLock()
	defer f.mu.RUnlock()
	all := make([]*record, 0, len(f.files))
	for _, r := range f.files {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.File.CreatedAt, b.File.CreatedAt), strings.Compare(string(a.File.ID),
			string(b.File.ID)))
	})
	return all
}

// close drops the index. The caller must hold mu.
func (f *shelf) close() {
	if f.index != nil {
		_ = f.index.Close() // it is in memory
	}
	f.index, f.places, f.keys, f.bytes = nil, nil, nil, 0
}

// unlist removes a file's passages from the index. The caller must hold mu.
func (f *shelf) unlist(ctx context.Context, id berth.FileID) error {
	if f.index == nil {
		return nil
	}
	keys := f.keys[id]
	delete(f.keys, id)
	for _, k := range keys {
		delete(f.places, k)
	}
	return f.index.Remove(ctx, keys)
}

// enlist adds a segment of a file to the index. The caller must hold mu.
func (f *shelf) enlist(ctx context.Context, r *record, n int, seg *segment, model string) error {
	var vectors [][]float32
	if model != "" && r.Model == model {
		vectors = unpack(seg.Vectors, len(seg.Chunks))
	}
	passages := make([]index.Passage, len(seg.Chunks))
	for i, text := range seg.Chunks {
		f.next++
		passages[i] = index.Passage{Key: f.next, Name: r.Filename, Text: text}
		if vectors != nil {
			passages[i].Vector = vectors[i]
		}
		f.places[f.next] = place{r.File.ID, n, i}
		f.keys[r.File.ID] = append(f.keys[r.File.ID], f.next)
		f.bytes += int64(len(text) + 4*len(passages[i].Vector))
	}
	return f.index.Add(ctx, passages)
}

// addVectors adds the vectors of a file to its passages in the index. The caller must hold
// mu.
func (f *shelf) addVectors(id berth.FileID, segments []*segment) {
	if f.index == nil {
		return
	}
	vectors := map[place][]float32{}
	for n, seg := range segments {
		for i, v := range unpack(seg.Vectors, len(seg.Chunks)) {
			vectors[place{id, n, i}] = v
		}
	}
	for _, key := range f.keys[id] {
		v := vectors[f.places[key]]
		f.index.SetVector(key, v)
		f.bytes += int64(4 * len(v))
	}
}

// A shelfKey names a vector store across projects.
type shelfKey struct {
	project berth.ProjectID
	store   berth.VectorStoreID
}

// shelves are the vector stores in memory. The least recently used indexes are dropped when
// all together have more than memory bytes of text. Records stay.
type shelves struct {
	memory  int64
	objects store.Objects
	texts   *texts
	vectors *vectorizer
	queue   *queue

	mu   sync.Mutex
	all  map[shelfKey]*shelf
	used []shelfKey // with an index, the last used last
}

// drop forgets a vector store.
func (s *shelves) drop(p berth.ProjectID, id berth.VectorStoreID) {
	key := shelfKey{p, id}
	s.mu.Lock()
	f := s.all[key]
	delete(s.all, key)
	s.used = slices.DeleteFunc(s.used, func(k shelfKey) bool { return k == key })
	s.mu.Unlock()
	if f != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.close()
	}
}

// use marks a store as used, and returns those whose indexes are to be dropped.
func (s *shelves) use(key shelfKey, bytes func(*shelf) int64) []*shelf {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = append(slices.DeleteFunc(s.used, func(k shelfKey) bool { return k == key }), key)
	var total int64
	var out []*shelf
	for i, k := range slices.Backward(s.used) {
		f := s.all[k]
		if f == nil {
			continue
		}
		if total += bytes(f); total > s.memory && i < len(s.used)-1 {
			for _, old := range s.used[:i+1] {
				if f := s.all[old]; f != nil {
					out = append(out, f)
				}
			}
			s.used = slices.Clone(s.used[i+1:])
			break
		}
	}
	return out
}

// load returns a vector store in memory with the records of its files.
func (s *shelves) load(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID) (*shelf, error) {
	key := shelfKey{p, id}
	s.mu.Lock()
	f := s.all[key]
	if f == nil {
		f = &shelf{}
		s.all[key] = f
	}
	s.mu.Unlock()
	f.mu.RLock()
	loaded := f.files != nil
	f.mu.RUnlock()
	if loaded {
		return f, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files != nil {
		return f, nil
	}
	files := map[berth.FileID]*record{}
	for page := (store.Page{Limit: 1000, Ascending: true}); ; {
		list, more, err := s.objects.ListObjects(ctx, p, store.KindVectorFile, string(id), page)
		if err != nil {
			return nil, fmt.Errorf("list files of vector store %s: %w", id, err)
		}
		for _, o := range list {
			r := &record{}
			if err := json.Unmarshal(o.Body, r); err != nil {
				return nil, fmt.Errorf("decode file %s of vector store %s: %w", o.ID, id, err)
			}
			files[r.File.ID], page.After = r, o.ID
		}
		if !more {
			break
		}
	}
	f.files = files
	var later []jobKey
	for _, r := range files {
		if s.vectors.lacks(r) {
			later = append(later, jobKey{p, id, r.File.ID})
		}
	}
	s.queue.embedLater(ctx, p, later)
	return f, nil
}

// indexed returns a vector store with its index, which it builds if necessary.
func (s *shelves) indexed(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID) (*shelf, error) {
	f, err := s.load(ctx, p, id)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	if f.index == nil {
		err = s.build(ctx, p, id, f)
	}
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	old := s.use(shelfKey{p, id}, func(f *shelf) int64 {
		f.mu.RLock()
		defer f.mu.RUnlock()
		return f.bytes
	})
	for _, o := range old {
		o.mu.Lock()
		o.close()
		o.mu.Unlock()
	}
	return f, nil
}

// build builds the index of a shelf from the stored text. The caller must hold its mu.
func (s *shelves) build(ctx context.Context, p berth.ProjectID, id berth.VectorStoreID, f *shelf) (err error) {
	if f.index, err = index.New(ctx); err != nil {
		return err
	}
	f.places, f.keys = map[int64]place{}, map[berth.FileID][]int64{}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	for _, r := range f.files {
		if r.File.Status != berth.VectorCompleted {
			continue
		}
		for n := range r.Segments {
			seg, err := s.texts.get(ctx, p, id, r.File.ID, n)
			if errors.Is(err, store.ErrNotFound) {
				break // the file is being deleted
			}
			if err != nil {
				return err
			}
			if err := f.enlist(ctx, r, n, seg, s.vectors.model()); err != nil {
				return err
			}
		}
	}
	return nil
}
