package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"path/filepath"
	"slices"
	"time"
)

// Parameters of the subject search.
const (
	searchQueries = 400
	searchModel   = "all-minilm-l6-v2"
	// readTime is how long reading and embedding all documents may take.
	readTime = 2 * time.Hour
	// statePause is between two requests for the state of a store, which cost the server time.
	statePause = 500 * time.Millisecond
)

// A library is a vector store with the documents of a corpus.
type library struct {
	*server
	store string
	index map[string]int // of the documents, by their files' ids
	read  time.Duration  // until all documents were read
	cpu   float64        // of the server in that time, in seconds
	first time.Duration  // the first search, for which the index is built
}

// A finding is how well one way to search finds documents by their titles.
type finding struct {
	hits  int     // documents among the first 5
	mrr   float64 // mean of 1 / rank, of ranks up to 50
	whole series  // of one search
}

// The findings of the three ways to search.
type findings struct {
	queries              int
	words, vectors, both finding
}

// measureSearch measures how well vector stores find documents of Debian by their titles,
// which are not in the text, by words alone and with the vectors of a real model.
func measureSearch(ctx context.Context, b *bench) error {
	found, err := b.searchDebian(ctx)
	if err != nil {
		return err
	}
	n := float64(found.queries)
	t := &table{title: fmt.Sprintf("Finding documents by their titles, %d queries", found.queries)}
	for _, way := range []struct {
		what string
		*finding
	}{{"hybrid", &found.both}, {"vectors alone", &found.vectors}} {
		t.add(row{what: "recall@5: " + way.what, series: one(float64(way.hits) / n), beside: "BM25",
			other: one(float64(found.words.hits) / n)})
		t.add(row{what: "MRR: " + way.what, series: one(way.mrr / n), beside: "BM25", other: one(found.words.mrr / n)})
		t.add(row{what: "one search: " + way.what, unit: "ms", series: way.whole, beside: "BM25",
			other: found.words.whole})
	}
	b.show(t)
	return nil
}

// searchDebian adds the documents to a store without vectors and to one with them, prints what
// that took, and searches both.
func (b *bench) searchDebian(ctx context.Context) (found *findings, err error) {
	documents, err := corpus(ctx, b.docs)
	if err != nil {
		return nil, fmt.Errorf("read the documents: %w", err)
	}
	model, err := b.startEmbedder(ctx)
	if err != nil {
		return nil, fmt.Errorf("start the embedding model: %w", err)
	}
	defer model.stop()
	words, err := b.library(ctx, "containers: {pool: 0}\n", "bm25", documents)
	if words != nil {
		defer stopped(words.server, &err)
	}
	if err != nil {
		return nil, err
	}
	before := cpuOf(model.processes())
	config := fmt.Sprintf(
		"containers: {pool: 0}\nmodels:\n- {match: %s, base_url: '%s/v1', api_key: none}\nvector_stores: {embedding_model: %[1]s}\n",
		searchModel, model.url)
	both, err := b.library(ctx, config, "hybrid", documents)
	if both != nil {
		defer stopped(both.server, &err)
	}
	if err != nil {
		return nil, err
	}
	t := &table{title: fmt.Sprintf("Indexing %d documents of Debian", len(documents))}
	t.add(row{what: "upload and reading, with vectors", unit: "s", series: one(both.read.Seconds()), beside: "without",
		other: one(words.read.Seconds())})
	t.add(row{what: "processor time of the server", unit: "s", series: one(both.cpu), beside: "without",
		other: one(words.cpu)})
	t.add(row{what: "processor time of the embedding model", unit: "s", series: one(cpuOf(model.processes()) - before)})
	t.add(row{what: "first search, which builds the index", unit: "ms", series: one(ms(both.first)), beside: "without",
		other: one(ms(words.first))})
	b.show(t)
	return find(ctx, words, both, documents)
}

// find searches for documents by their titles, by words, by vectors and by both in turn.
func find(ctx context.Context, words, both *library, documents []document) (*findings, error) {
	found := &findings{}
	for i, d := range documents {
		if d.query == "" || found.queries == searchQueries {
			continue
		}
		found.queries++
		for _, err := range []error{
			found.words.search(ctx, words, d.query, i, "bm25", nil),
			found.vectors.search(ctx, both, d.query, i, "vector", map[string]any{"embedding_weight": 1,
				"text_weight": 0}),
			found.both.search(ctx, both, d.query, i, "hybrid", nil),
		} {
			if err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// search searches once, for the document with a number.
func (f *finding) search(ctx context.Context, l *library, query string, wanted int, search string,
	weights map[string]any) error {
	var ranks []int
	took, err := timed(func() (err error) {
		ranks, err = l.search(ctx, query, search, weights)
		return err
	})
	f.whole.took(took, err)
	if err != nil {
		return err
	}
	if rank := slices.Index(ranks, wanted); rank >= 0 {
		f.mrr += 1 / float64(rank+1)
		if rank < 5 {
			f.hits++
		}
	}
	return nil
}

// search returns the numbers of the documents with the best 50 passages, each once. search
// is the kind of search that must run.
func (l *library) search(ctx context.Context, query, search string, weights map[string]any) ([]int, error) {
	in := map[string]any{"query": query, "max_num_results": 50}
	if weights != nil {
		in["ranking_options"] = map[string]any{"hybrid_search": weights}
	}
	var page struct {
		Data []struct {
			FileID string `json:"file_id"`
		}
		Berth struct{ Search string }
	}
	if err := l.do(ctx, http.MethodPost, "/v1/vector_stores/"+l.store+"/search", in, &page); err != nil {
		return nil, err
	}
	if page.Berth.Search != search {
		return nil, fmt.Errorf("the search was %q, not %q", page.Berth.Search, search)
	}
	var found []int
	for _, hit := range page.Data {
		if i, ok := l.index[hit.FileID]; ok && !slices.Contains(found, i) {
			found = append(found, i)
		}
	}
	return found, nil
}

// library starts a server, adds documents to a vector store and searches it. The server is
// returned with an error, too, if it was started.
func (b *bench) library(ctx context.Context, config, search string, documents []document) (*library, error) {
	s, err := b.serve(ctx, config)
	if err != nil {
		return nil, err
	}
	l := &library{server: s, index: map[string]int{}}
	if err := l.fill(ctx, documents); err != nil {
		return l, fmt.Errorf("add documents: %w", err)
	}
	l.first, err = timed(func() error { _, err := l.search(ctx, "documentation", search, nil); return err })
	return l, err
}

// fill uploads documents, adds them to a store and waits until all were read.
func (l *library) fill(ctx context.Context, documents []document) error {
	began, before := time.Now(), cpuWithEnded(l.cmd.Process.Pid)
	var store struct{ ID string }
	if err := l.do(ctx, http.MethodPost, "/v1/vector_stores", map[string]any{"name": "Debian"}, &store); err != nil {
		return err
	}
	l.store = store.ID
	var ids []string
	for i, d := range documents {
		id, err := l.add(ctx, d)
		if err != nil {
			return err
		}
		l.index[id] = i
		ids = append(ids, id)
	}
	for some := range slices.Chunk(ids, 500) {
		if err := l.do(ctx, http.MethodPost, "/v1/vector_stores/"+l.store+"/file_batches",
			map[string]any{"file_ids": some}, nil); err != nil {
			return err
		}
	}
	var state struct {
		Counts struct{ Completed, Failed int } `json:"file_counts"`
	}
	var failure error
	var asked time.Time
	err := l.await(ctx, readTime, func() bool {
		if time.Since(asked) < statePause {
			return false
		}
		asked = time.Now()
		failure = l.do(ctx, http.MethodGet, "/v1/vector_stores/"+l.store, nil, &state)
		return failure != nil || state.Counts.Completed+state.Counts.Failed == len(documents)
	})
	if err == nil && failure == nil && state.Counts.Failed > 0 {
		failure = fmt.Errorf("%d documents could not be read: %w", state.Counts.Failed, l.reasons(ctx))
	}
	l.read, l.cpu = time.Since(began), cpuWithEnded(l.cmd.Process.Pid)-before
	return errors.Join(err, failure)
}

// reasons returns why documents could not be read.
func (l *library) reasons(ctx context.Context) error {
	var page struct {
		Data []struct {
			ID        string
			LastError struct{ Message string } `json:"last_error"`
		}
	}
	errs := []error{l.do(ctx, http.MethodGet, "/v1/vector_stores/"+l.store+"/files?filter=failed", nil, &page)}
	for _, f := range page.Data {
		errs = append(errs, fmt.Errorf("document %d: %s", l.index[f.ID], f.LastError.Message))
	}
	return errors.Join(errs...)
}

// add uploads a document and returns the file's id.
func (l *library) add(ctx context.Context, d document) (string, error) {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	err := form.WriteField("purpose", "assistants")
	part, err2 := form.CreateFormFile("file", d.name)
	if err := errors.Join(err, err2); err != nil {
		return "", err
	}
	_, err = part.Write([]byte(d.text))
	if err := errors.Join(err, form.Close()); err != nil {
		return "", err
	}
	resp, err := l.send(ctx, http.MethodPost, "/v1/files", form.FormDataContentType(), &body)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var file struct{ ID string }
	err = json.NewDecoder(resp.Body).Decode(&file)
	return file.ID, err
}

// embedderKind is the model that `scripts/setup search` installs.
var embedderKind = peerKind{
	name: "all-MiniLM-L6-v2", lock: "search", model: searchModel,
	command: func(bin, dir, model, port string) []string {
		return []string{filepath.Join(bin, "python"), "-X", "pycache_prefix=" + filepath.Join(dir, "cache"), model,
			port}
	},
	ready: func(p *peer, ctx context.Context, client *http.Client) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/v1/models", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	},
}

func (b *bench) startEmbedder(ctx context.Context) (*peer, error) {
	script, err := filepath.Abs(filepath.Join("e2e", "python", "serve_minilm.py"))
	if err != nil {
		return nil, err
	}
	return b.startPeer(ctx, embedderKind, script)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
