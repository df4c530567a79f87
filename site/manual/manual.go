// Package manual renders an OpenAPI document as HTML: an overview of the routes, a page for each tag with its routes,
// and a page for each schema. The HTML contains no scripts, and its links are relative.
package manual

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"
)

//go:embed page.html
var layout string

// A Manual is the pages of an OpenAPI document. It is safe for concurrent use.
type Manual struct {
	doc  *document
	docs string // the URL of the directory with the pages of the documentation
	// the templates of the pages in the directory of the manual, and of those in schemas
	top, inner *template.Template
}

// A Page is the address of a page in the directory of the manual, and its title.
type Page struct{ Path, Title string }

// A Part is a part of a page, with the fragment that leads to it.
type Part struct{ Title, Fragment string }

// New returns the manual of an OpenAPI document. Links to pages below the URL docs lead to the directory above that of
// the manual.
func New(text []byte, docs string) (*Manual, error) {
	m := &Manual{doc: &document{}, docs: docs}
	if err := json.Unmarshal(text, m.doc); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	m.doc.build()
	var err error
	if m.top, err = m.parse(""); err == nil {
		m.inner, err = m.parse("../")
	}
	return m, err
}

// parse returns the templates of the pages in a directory from which base leads to the manual.
func (m *Manual) parse(base string) (*template.Template, error) {
	t, err := template.New("page").Funcs(template.FuncMap{
		"base": func() string { return base },
		"code": Breakable,
		"page": func(url string) string {
			page, ok := strings.CutPrefix(url, m.docs)
			if !ok {
				return url
			}
			return base + "../" + strings.Replace(page, ".md", ".html", 1)
		},
	}).Parse(layout)
	if err != nil {
		return nil, fmt.Errorf("parse the templates: %w", err)
	}
	return t, nil
}

// Sections returns the overview and the pages of the tags.
func (m *Manual) Sections() []Page {
	all := []Page{{"index.html", "Overview"}}
	for _, s := range m.doc.sections {
		all = append(all, Page{s.Slug + ".html", s.Name})
	}
	return all
}

// Schemas returns the pages of the schemas.
func (m *Manual) Schemas() []Page {
	var all []Page
	for _, name := range slices.Sorted(maps.Keys(m.doc.Components.Schemas)) {
		all = append(all, Page{"schemas/" + name + ".html", name})
	}
	return all
}

// A Route is a route with the address of its description in the directory of the manual.
type Route struct{ Method, Path, Summary, Section, Address string }

// Routes returns all routes.
func (m *Manual) Routes() []Route {
	var all []Route
	for _, s := range m.doc.sections {
		for _, op := range s.Operations {
			all = append(all, Route{op.Method, op.Path, op.Summary, s.Name, s.Slug + ".html#" + op.OperationID})
		}
	}
	return all
}

// content is what the template shows.
type content struct {
	Title    string
	Text     string
	Sections []*section // of the overview
	Section  *section
	Schema   *shape
	Users    []*operation // of the schema
}

// Render returns the HTML of a page, with its parts.
func (m *Manual) Render(path string) (template.HTML, []Part, error) {
	c, parts, templates := m.find(path)
	if c == nil {
		return "", nil, fmt.Errorf("the manual has no page %s", path)
	}
	var text bytes.Buffer
	if err := templates.Execute(&text, c); err != nil {
		return "", nil, fmt.Errorf("render the page %s: %w", path, err)
	}
	return template.HTML(text.String()), parts, nil
}

func (m *Manual) find(path string) (*content, []Part, *template.Template) {
	var parts []Part
	name := strings.TrimSuffix(path, ".html")
	if schema, ok := strings.CutPrefix(name, "schemas/"); ok {
		s, ok := m.doc.Components.Schemas[schema]
		if !ok {
			return nil, nil, nil
		}
		return &content{Title: schema, Schema: m.doc.shape(s, 0), Users: m.doc.users[schema]}, nil, m.inner
	}
	if name == "index" {
		for _, s := range m.doc.sections {
			parts = append(parts, Part{s.Name, s.Slug})
		}
		return &content{Title: "API reference", Text: m.doc.Info.Description, Sections: m.doc.sections}, parts, m.top
	}
	i := slices.IndexFunc(m.doc.sections, func(s *section) bool { return s.Slug == name })
	if i < 0 {
		return nil, nil, nil
	}
	s := m.doc.sections[i]
	for _, op := range s.Operations {
		parts = append(parts, Part{op.Summary, op.OperationID})
	}
	return &content{Title: s.Name, Section: s}, parts, m.top
}

// slug returns the name of a tag in a URL.
func slug(name string) string { return strings.ReplaceAll(strings.ToLower(name), " ", "-") }
