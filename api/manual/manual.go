// Package manual shows an OpenAPI document as web pages: an overview of the routes, a page for each tag with its
// routes, and a page for each schema. The pages contain no scripts and load nothing from elsewhere.
package manual

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed style.css
var style []byte

//go:embed page.html
var layout string

var pages = template.Must(template.New("page").Parse(layout))

// policy lets a page load its style sheet and nothing else.
const policy = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// A Manual serves the pages. It is safe for concurrent use.
type Manual struct {
	read func() (*document, error)
}

// New returns the manual of an OpenAPI document, which is read at the first request.
func New(text []byte) *Manual {
	return &Manual{sync.OnceValues(func() (*document, error) {
		d := &document{}
		if err := json.Unmarshal(text, d); err != nil {
			return nil, fmt.Errorf("read the OpenAPI document: %w", err)
		}
		d.build()
		return d, nil
	})}
}

// Overview serves GET /docs.
func (m *Manual) Overview(w http.ResponseWriter, r *http.Request) {
	m.show(w, r, func(d *document) *page {
		return &page{Title: d.Info.Title, Text: d.Info.Description, Sections: d.sections}
	})
}

// Section serves GET /docs/{section}: a tag or the style sheet.
func (m *Manual) Section(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("section")
	if name == "style.css" {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(style))
		return
	}
	m.show(w, r, func(d *document) *page {
		i := slices.IndexFunc(d.sections, func(s *section) bool { return s.Slug == name })
		if i < 0 {
			return nil
		}
		return &page{Title: d.sections[i].Name, Section: d.sections[i]}
	})
}

// Schema serves GET /docs/schemas/{schema}.
func (m *Manual) Schema(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("schema")
	m.show(w, r, func(d *document) *page {
		s, ok := d.Components.Schemas[name]
		if !ok {
			return nil
		}
		return &page{Title: name, Schema: d.shape(s, 0), Users: d.users[name]}
	})
}

// A page is what the template shows.
type page struct {
	Title    string
	Text     string
	Sections []*section // of the overview
	Section  *section
	Schema   *shape
	Users    []*operation // of the schema

	All     []*section
	Current string // the slug of Section
	Version string
}

func (m *Manual) show(w http.ResponseWriter, _ *http.Request, find func(*document) *page) {
	d, err := m.read()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	p, status := find(d), http.StatusOK
	if p == nil {
		p, status = &page{Title: "Not found", Text: "The reference has no such page."}, http.StatusNotFound
	}
	p.All, p.Version = d.sections, d.Info.Version
	if p.Section != nil {
		p.Current = p.Section.Slug
	}
	var text bytes.Buffer
	if err := pages.Execute(&text, p); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes())
}

// slug returns the name of a tag in a URL.
func slug(name string) string { return strings.ReplaceAll(strings.ToLower(name), " ", "-") }
