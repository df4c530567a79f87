package console

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/berth-run/berth"
)

// A vectorStoresPage is the list of vector stores.
type vectorStoresPage struct{ rows[berth.VectorStore] }

// show serves GET /console/vector-stores.
func (p *vectorStoresPage) show(v *visit) error {
	text := textIn(func(s berth.VectorStore) []string { return []string{s.Name, string(s.ID)} })
	if err := p.find(v, "/v1/vector_stores", text); err != nil {
		return err
	}
	return v.show(http.StatusOK, "vectorstores", "Vector stores", p)
}

// create serves POST /console/vector-stores.
func (*vectorStoresPage) create(v *visit) error {
	var made berth.VectorStore
	if err := v.post("/v1/vector_stores", map[string]any{"name": strings.TrimSpace(v.form.fields.Get("name"))},
		&made); err != nil {
		return err
	}
	return v.redirect(pathTo("/console/vector-stores", made.ID))
}

// A vectorStorePage is the page of a vector store.
type vectorStorePage struct {
	berth.VectorStore
	rows[*vectorFileRow]
	Query  string // "" searches nothing
	Hits   []hit  // what the query has found, the best first
	Search string // how it was searched: bm25, hybrid or vector
	Note   string // why it was searched by words only
}

// A vectorFileRow is a file of a vector store.
type vectorFileRow struct {
	berth.VectorStoreFile
	Filename string `json:"-"` // or its id
}

// A hit is a passage that a search has found.
type hit struct {
	FileID   berth.FileID `json:"file_id"`
	Filename string
	Score    float64 // from 0 to 1
	Content  []struct{ Text string }
}

// Text returns the passage.
func (h hit) Text() string {
	var parts []string
	for _, c := range h.Content {
		parts = append(parts, c.Text)
	}
	return clip(strings.Join(parts, "\n\n"), shownGrowing)
}

// Percent returns the score in percent.
func (h hit) Percent() int64 { return int64(math.Round(100 * min(1, max(0, h.Score)))) }

// Exact returns the score with its decimals.
func (h hit) Exact() string { return fmt.Sprintf("%.3f", h.Score) }

// show serves GET /console/vector-stores/{store}: its files, and what a query finds in them.
func (p *vectorStorePage) show(v *visit) error {
	from := pathTo("/v1/vector_stores", v.r.PathValue("store"))
	if err := v.get(from, &p.VectorStore); err != nil {
		return err
	}
	if err := p.read(v, from+"/files", mostRows); err != nil {
		return err
	}
	for _, f := range p.Rows {
		var file berth.File
		if err := v.get(pathTo("/v1/files", f.ID), &file); err != nil && !refused(err) {
			return err
		}
		f.Filename = cmp.Or(file.Filename, short(string(f.ID))) // the file itself may be deleted
	}
	if p.Query = strings.TrimSpace(v.r.URL.Query().Get("q")); p.Query != "" {
		if err := p.search(v, from); err != nil {
			return err
		}
	}
	return v.show(http.StatusOK, "vectorstore", p.Title(), p)
}

// search searches the store for the query.
func (p *vectorStorePage) search(v *visit, from string) error {
	var found struct {
		Data  []hit
		Berth struct{ Search, Degraded string }
	}
	if err := v.post(from+"/search", map[string]any{"query": p.Query, "max_num_results": 20}, &found); err != nil {
		return err
	}
	p.Hits, p.Search, p.Note = found.Data, found.Berth.Search, found.Berth.Degraded
	return nil
}

// Title returns the name of the store, or its id without one.
func (p vectorStorePage) Title() string { return cmp.Or(p.Name, short(string(p.VectorStore.ID))) }

// Changing reports whether files are read.
func (p vectorStorePage) Changing() bool { return p.FileCounts.InProgress > 0 }

// change serves POST /console/vector-stores/{store}: it adds or removes files, or deletes the store, as the form says.
func (*vectorStorePage) change(v *visit) error {
	id := v.r.PathValue("store")
	from := pathTo("/v1/vector_stores", id)
	switch v.form.fields.Get("do") {
	case "add":
		ids, err := uploadAll(v, "assistants")
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return errNoFile
		}
		for _, file := range ids {
			if err := v.post(from+"/files", map[string]any{"file_id": file}, &struct{}{}); err != nil {
				return err
			}
		}
	case "remove":
		if err := v.delete(pathTo(from+"/files", v.form.fields.Get("file"))); err != nil {
			return err
		}
	case "delete":
		if err := v.delete(from); err != nil {
			return err
		}
		return v.redirect("/console/vector-stores")
	default:
		return &failure{http.StatusBadRequest, "The form is incomplete."}
	}
	return v.redirect(pathTo("/console/vector-stores", id))
}
