package site

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// A navigation is the order of the pages. It comes from docs/README.md: each ## heading is a chapter, each ### heading
// in it a group, and each item of a list that begins with a link to a page is an entry. A chapter without entries is
// text.
type navigation struct {
	chapters []*chapter
	order    []*entry // of all chapters
}

type chapter struct {
	Title  string
	Groups []*group
}

type group struct {
	Title   string // "" before the first ### heading
	Entries []*entry
}

// An entry is a page of the navigation.
type entry struct {
	Title, Text string // the text says what the page is about
	Path        string // of the web page
	Source      string // of the Markdown; "" for the reference of the API
	Parts       []*entry
	chapter     *chapter
}

// readNavigation reads README.md. The decisions and the reference of the API follow the entries that lead to them.
func (s *Site) readNavigation() (*navigation, error) {
	src, err := fs.ReadFile(s.options.Docs, "README.md")
	if err != nil {
		return nil, fmt.Errorf("read the navigation: %w", err)
	}
	n := &navigation{}
	for node := parse(src).FirstChild(); node != nil; node = node.NextSibling() {
		switch node := node.(type) {
		case *ast.Heading:
			switch title := plainText(node, src); {
			case node.Level == 2:
				n.chapters = append(n.chapters, &chapter{Title: title, Groups: []*group{{}}})
			case node.Level == 3 && len(n.chapters) > 0:
				c := n.chapters[len(n.chapters)-1]
				c.Groups = append(c.Groups, &group{Title: title})
			}
		case *ast.List:
			if len(n.chapters) > 0 {
				n.add(n.chapters[len(n.chapters)-1], node, src)
			}
		}
	}
	n.chapters = slices.DeleteFunc(n.chapters, func(c *chapter) bool {
		return !slices.ContainsFunc(c.Groups, func(g *group) bool { return len(g.Entries) > 0 })
	})
	if err := s.addParts(n); err != nil {
		return nil, err
	}
	return n, nil
}

// add adds the entries of a list to the last group of a chapter.
func (n *navigation) add(c *chapter, list *ast.List, src []byte) {
	for item := list.FirstChild(); item != nil; item = item.NextSibling() {
		block := item.FirstChild()
		if block == nil {
			continue
		}
		link, ok := block.FirstChild().(*ast.Link)
		if !ok || !isPage(string(link.Destination)) {
			continue
		}
		source, title := string(link.Destination), plainText(link, src)
		rest := strings.TrimPrefix(plainText(block, src), title)
		e := &entry{Title: title, Text: strings.TrimLeft(rest, ":, "), Path: pagePath(source), Source: source,
			chapter: c}
		g := c.Groups[len(c.Groups)-1]
		g.Entries = append(g.Entries, e)
		n.order = append(n.order, e)
	}
}

// isPage reports whether a link leads to a page of docs.
func isPage(link string) bool {
	return path.Ext(link) == ".md" && !strings.HasPrefix(link, "../") && !strings.Contains(link, ":")
}

// addParts adds the decisions, and the reference of the API after the page about the API.
func (s *Site) addParts(n *navigation) error {
	for _, e := range slices.Clone(n.order) {
		switch dir := path.Dir(e.Source); {
		case e.Source == "api.md":
			n.follow(e, s.reference(e.chapter))
		case path.Base(e.Source) == "README.md" && dir != ".":
			for _, source := range s.sources {
				if path.Dir(source) != dir || source == e.Source {
					continue
				}
				title, err := s.titleOf(source)
				if err != nil {
					return err
				}
				e.Parts = append(e.Parts,
					&entry{Title: title, Path: pagePath(source), Source: source, chapter: e.chapter})
			}
			i := slices.Index(n.order, e)
			n.order = slices.Insert(n.order, i+1, e.Parts...)
		}
	}
	return nil
}

// reference returns the entry of the reference of the API.
func (s *Site) reference(c *chapter) *entry {
	e := &entry{Title: "API reference", Text: "each route with its parameters, body and answer.", chapter: c,
		Path: apiDir + "index.html"}
	for _, p := range s.manual.Sections()[1:] {
		e.Parts = append(e.Parts, &entry{Title: p.Title, Path: apiDir + p.Path, chapter: c})
	}
	return e
}

// follow inserts an entry with its parts after another one.
func (n *navigation) follow(after, e *entry) {
	for _, g := range after.chapter.Groups {
		if i := slices.Index(g.Entries, after); i >= 0 {
			g.Entries = slices.Insert(g.Entries, i+1, e)
		}
	}
	i := slices.Index(n.order, after)
	n.order = slices.Insert(n.order, i+1, append([]*entry{e}, e.Parts...)...)
}

// titleOf returns the first heading of a page.
func (s *Site) titleOf(source string) (string, error) {
	src, err := fs.ReadFile(s.options.Docs, source)
	if err != nil {
		return "", fmt.Errorf("read a title: %w", err)
	}
	for node := parse(src).FirstChild(); node != nil; node = node.NextSibling() {
		if h, ok := node.(*ast.Heading); ok {
			return plainText(h, src), nil
		}
	}
	return source, nil
}

// at returns the index of a page in the order, or -1.
func (n *navigation) at(path string) int {
	return slices.IndexFunc(n.order, func(e *entry) bool { return e.Path == path })
}

// parse returns the tree of a page.
func parse(src []byte) ast.Node { return converter().Parser().Parse(text.NewReader(src)) }

// plainText returns the text of a node without its marks.
func plainText(n ast.Node, src []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Value(src))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.RawHTML:
			return ast.WalkSkipChildren, nil
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}
