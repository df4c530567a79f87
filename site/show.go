package site

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"path"

	"github.com/berth-run/berth/console/assets"
	"github.com/berth-run/berth/site/manual"
)

//go:embed page.html
var layout string

//go:embed site.css
var style []byte

//go:embed site.js
var script []byte

var pages = template.Must(template.New("page").Parse(layout))

// fonts are the files that the tokens of the design load.
var fonts = []string{"inter-5.3.0.woff2", "jetbrains-mono-5.3.0.woff2"}

// assetFiles returns what pages load.
func assetFiles() map[string]func() ([]byte, error) {
	all := map[string]func() ([]byte, error){
		"assets/site.css": func() ([]byte, error) { return append([]byte(assets.Tokens()), style...), nil },
		"assets/site.js":  func() ([]byte, error) { return script, nil },
		"assets/icon.svg": func() ([]byte, error) { return assets.Files.ReadFile("icon.svg") },
	}
	for _, name := range fonts {
		all["assets/vendor/"+name] = func() ([]byte, error) { return assets.Files.ReadFile("vendor/" + name) }
	}
	return all
}

// A view is what the template shows.
type view struct {
	*page
	Path           string
	Root           string // the address of the site's first page's directory
	Version        string
	Published      bool
	Source         string // the name of the Markdown beside the page; "" if it has none
	Edit           string // the URL of the source
	Chapter        string
	Home           bool
	Chapters       []navChapter
	Previous, Next *entry
}

type navChapter struct {
	Title  string
	Open   bool
	Groups []navGroup
}

type navGroup struct {
	Title   string
	Entries []navEntry
}

type navEntry struct {
	*entry
	Here  bool
	Parts []navEntry // if one of them or the entry is shown
}

func (s *Site) showPage(source string) ([]byte, error) {
	p, err := s.render(source)
	if err != nil {
		return nil, err
	}
	v := s.view(pagePath(source), p)
	v.Source, v.Edit, v.Home = path.Base(source), s.inRepository("docs/"+source), source == "README.md"
	return v.execute()
}

func (s *Site) showReference(r manual.Page) ([]byte, error) {
	text, parts, err := s.manual.Render(r.Path)
	if err != nil {
		return nil, fmt.Errorf("render the reference: %w", err)
	}
	p := &page{Title: r.Title}
	p.setHTML(string(text))
	if r.Path == "index.html" {
		p.Title = "API reference"
	}
	for _, part := range parts {
		p.Headings = append(p.Headings, heading{2, part.Title, part.Fragment})
	}
	return s.view(apiDir+r.Path, p).execute()
}

// view returns what the template shows for a page.
func (s *Site) view(at string, p *page) *view {
	v := &view{page: p, Path: at, Root: relative(at, ""), Version: s.options.Version, Published: s.options.Published}
	i := s.nav.at(at)
	if i > 0 {
		v.Previous = s.nav.order[i-1]
	}
	if i >= 0 && i+1 < len(s.nav.order) {
		v.Next = s.nav.order[i+1]
	}
	if at == "index.html" {
		v.Next = s.nav.order[0]
	}
	for _, c := range s.nav.chapters {
		nc := navChapter{Title: c.Title}
		if i >= 0 && s.nav.order[i].chapter == c {
			nc.Open, v.Chapter = true, c.Title
		}
		for _, g := range c.Groups {
			if len(g.Entries) == 0 {
				continue
			}
			ng := navGroup{Title: g.Title}
			for _, e := range g.Entries {
				ng.Entries = append(ng.Entries, showEntry(e, at))
			}
			nc.Groups = append(nc.Groups, ng)
		}
		v.Chapters = append(v.Chapters, nc)
	}
	return v
}

// showEntry returns an entry for the page at a path. Its parts are shown on its page and on theirs.
func showEntry(e *entry, at string) navEntry {
	n := navEntry{entry: e, Here: e.Path == at}
	inside := n.Here
	for _, part := range e.Parts {
		n.Parts = append(n.Parts, navEntry{entry: part, Here: part.Path == at})
		inside = inside || part.Path == at
	}
	if !inside {
		n.Parts = nil
	}
	return n
}

// execute returns the HTML.
func (v *view) execute() ([]byte, error) {
	var b bytes.Buffer
	if err := pages.Execute(&b, v); err != nil {
		return nil, fmt.Errorf("show the page %s: %w", v.Path, err)
	}
	return b.Bytes(), nil
}
