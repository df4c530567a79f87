package vectorstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
)

// A fakeEmbedder knows that boats and ships are the same.
type fakeEmbedder struct {
	name    string
	err     error
	longest int // bytes of a text that it takes; 0 means any
	batches []int
}

func (e *fakeEmbedder) Model() string { return e.name }

func (e *fakeEmbedder) Embed(_ context.Context, _ berth.ProjectID, texts []string) ([][]float32, error) {
	e.batches = append(e.batches, len(texts))
	if e.err != nil {
		return nil, e.err
	}
	out := make([][]float32, len(texts))
	for i, text := range texts {
		if e.longest > 0 && len(text) > e.longest {
			return nil, berth.Errorf(berth.CodeInvalid, "too long")
		}
		out[i] = []float32{0.1, 0.1}
		if strings.Contains(text, "boat") || strings.Contains(text, "ship") {
			out[i] = []float32{5, 0}
		}
	}
	return out, nil
}

func (s *shop) search(id berth.VectorStoreID, query string, weights *berth.HybridSearch) string {
	s.t.Helper()
	got, err := s.Search(s.t.Context(), mine, []berth.VectorStoreID{id}, Query{Queries: []string{query}, Limit: 1,
		Ranking: berth.RankingOptions{HybridSearch: weights}})
	if err != nil {
		s.t.Fatal(err)
	}
	line := fmt.Sprint(got.Search, " ", got.Degraded)
	for _, r := range got.List {
		line += " " + string(r.FileID)
	}
	return line
}

func (s *shop) read() {
	s.t.Helper()
	if err := s.ReadAll(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

var harbour = map[berth.FileID]string{"file-a": "a ship in the harbour", "file-b": "nets and ropes",
	"file-c": "harbour, harbour"}

func TestHybridSearch(t *testing.T) {
	e := &fakeEmbedder{name: "m"}
	s := newShop(t, func(o *Options) { o.Embedder = e })
	id := s.stock(harbour)
	for range 2 { // also after a restart, from the store
		for _, tc := range []struct {
			query, want string
			weights     *berth.HybridSearch
		}{
			{"boats", "hybrid false file-a", nil},
			{"boats", "bm25 false", &berth.HybridSearch{TextWeight: 1}},
			{"boats harbour", "vector false file-a", &berth.HybridSearch{EmbeddingWeight: 1}},
			{"boats harbour", "hybrid false file-c", &berth.HybridSearch{EmbeddingWeight: 0.01, TextWeight: 1}},
		} {
			if got := s.search(id, tc.query, tc.weights); got != tc.want {
				t.Errorf("%s with %v: got %s, want %s", tc.query, tc.weights, got, tc.want)
			}
		}
		s.Service = New(s.opts)
	}
}

// While the Embedder fails, files are read, searches work and say so, and no request waits
// for it. Afterwards the files are embedded.
func TestEmbedderFails(t *testing.T) {
	e := &fakeEmbedder{name: "m", err: errors.New("down")}
	s := newShop(t, func(o *Options) { o.Embedder = e })
	id := s.stock(harbour)
	if diff := cmp.Diff([]int{1}, e.batches); diff != "" {
		t.Errorf("requests while it rests (-want +got):\n%s", diff)
	}
	v, err := s.Service.Get(t.Context(), mine, id)
	if err != nil || v.FileCounts.Completed != 3 || v.Status != berth.VectorCompleted {
		t.Errorf("got %+v, %v", v, err)
	}
	text := v.UsageBytes
	if got := s.search(id, "ropes", nil); got != "bm25 false file-b" {
		t.Errorf("got %s", got)
	}
	e.err = nil
	s.now = s.now.Add(2 * time.Hour)
	s.read()
	if got := s.search(id, "boats", nil); got != "hybrid false file-a" {
		t.Errorf("after its return: got %s", got)
	}
	if v, err = s.Service.Get(t.Context(), mine, id); err != nil || v.UsageBytes != text+3*2*4 {
		t.Errorf("got %d bytes, %v, want %d", v.UsageBytes, err, text+24)
	}
	e.err = berth.Errorf(berth.CodeUpstream, "down again")
	if got := s.search(id, "harbour", nil); got != "bm25 true file-c" {
		t.Errorf("query: got %s", got)
	}
	calls := len(e.batches)
	s.search(id, "harbour", nil)
	if len(e.batches) != calls {
		t.Error("a search waits for an Embedder that rests")
	}
}

// Stores made without an Embedder, or with another model, are embedded once they are used.
func TestEmbedOldStores(t *testing.T) {
	s := newShop(t, nil)
	id := s.stock(harbour)
	for _, model := range []string{"m", "other"} {
		e := &fakeEmbedder{name: model}
		s.opts.Embedder = e
		s.Service = New(s.opts)
		if got := s.search(id, "ropes", nil); got != "bm25 false file-b" {
			t.Errorf("%s, before: got %s", model, got)
		}
		s.read()
		if got := s.search(id, "boats", nil); got != "hybrid false file-a" {
			t.Errorf("%s, after: got %s", model, got)
		}
		s.read()
		if len(e.batches) != 4 {
			t.Errorf("%s: got requests %v, want one for each file and the query", model, e.batches)
		}
	}
}

// A text that the model refuses is embedded in part, and does not affect others.
func TestRefusedTexts(t *testing.T) {
	e := &fakeEmbedder{name: "m", longest: 1000}
	s := newShop(t, func(o *Options) { o.Embedder = e })
	id := s.stock(map[berth.FileID]string{"file-a": "ship " + strings.Repeat("sail ", 300),
		"file-b": strings.Repeat("net ", 3000)})
	if got := s.search(id, "boats", nil); got != "hybrid false file-a" {
		t.Errorf("got %s", got)
	}
	e.longest = 1
	id = s.stock(map[berth.FileID]string{"file-c": "a ship"})
	if got := s.search(id, "ship", nil); got != "bm25 false file-c" {
		t.Errorf("got %s", got)
	}
}

// A file whose embedding waits can be removed and added again, and is read immediately.
func TestAddAgainWhileEmbeddingWaits(t *testing.T) {
	e := &fakeEmbedder{name: "m", err: errors.New("down")}
	s := newShop(t, func(o *Options) { o.Embedder = e })
	id := s.stock(map[berth.FileID]string{"file-a": "old"})
	for _, remove := range []bool{false, true} {
		if remove {
			if err := s.RemoveFile(t.Context(), mine, id, "file-a"); err != nil {
				t.Fatal(err)
			}
		}
		s.files["file-a"] = fmt.Sprint("new ", remove)
		if _, err := s.AddFile(t.Context(), mine, id, FileRequest{FileID: "file-a"}); err != nil {
			t.Fatal(err)
		}
		s.read()
		if got := s.search(id, fmt.Sprint(remove), nil); got != "bm25 false file-a" {
			t.Errorf("removed %v: got %s", remove, got)
		}
	}
}
