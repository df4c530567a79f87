package site

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"

	"github.com/berth-run/berth/site/manual"
)

// A page is a rendered source.
type page struct {
	Title, Lead string        // the lead is its first paragraph
	Head        template.HTML // the title
	HTML        template.HTML // what follows
	Headings    []heading
	sections    []section
}

// A heading is a heading below the title.
type heading struct {
	Level           int
	Title, Fragment string
}

// A section is the text below a heading, or the one above the first, for the search.
type section struct{ title, fragment, text string }

var converter = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(nodes{}, 1))))
})

// render returns a source as a page.
func (s *Site) render(source string) (*page, error) {
	src, err := fs.ReadFile(s.options.Docs, source)
	if err != nil {
		return nil, fmt.Errorf("read a page: %w", err)
	}
	doc, p := parse(src), &page{}
	used := map[string]int{}
	err = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			title := plainText(n, src)
			fragment := slug(title)
			used[fragment]++
			if again := used[fragment] - 1; again > 0 {
				fragment = fmt.Sprintf("%s-%d", fragment, again)
			}
			n.SetAttributeString("id", []byte(fragment))
			if n.Level == 1 {
				p.Title = title
			} else {
				p.Headings = append(p.Headings, heading{n.Level, title, fragment})
			}
		case *ast.Link:
			n.Destination = []byte(s.address(source, string(n.Destination)))
			if next, ok := n.NextSibling().(*ast.Text); ok && n.PreviousSibling() == nil && source == "README.md" {
				if text := next.Value(src); bytes.HasPrefix(text, []byte(": ")) { // the link is the head of a card
					next.Segment = next.Segment.WithStart(next.Segment.Start + 2)
				}
			}
		case *ast.Image:
			n.Destination = []byte(s.address(source, string(n.Destination)))
		case *ast.HTMLBlock, *ast.RawHTML:
			if raw := strings.TrimSpace(rawText(n, src)); !strings.HasPrefix(raw, "<!--") {
				return ast.WalkStop, fmt.Errorf("it has HTML, which is not shown: %s", raw)
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", source, err)
	}
	p.split(doc, src)
	var b bytes.Buffer
	if err := converter().Renderer().Render(&b, src, doc); err != nil {
		return nil, fmt.Errorf("render %s: %w", source, err)
	}
	p.setHTML(b.String())
	return p, nil
}

// setHTML sets the HTML of the page, which begins with its title.
func (p *page) setHTML(text string) {
	head, rest, _ := strings.Cut(text, "</h1>\n")
	p.Head, p.HTML = template.HTML(head+"</h1>"), template.HTML(rest)
}

// split fills in the sections and the lead.
func (p *page) split(doc ast.Node, src []byte) {
	p.sections = []section{{title: p.Title}}
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		last := &p.sections[len(p.sections)-1]
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level > 1 {
				id, _ := n.AttributeString("id")
				p.sections = append(p.sections, section{title: plainText(n, src), fragment: string(id.([]byte))})
			}
			continue
		case *ast.Paragraph:
			if p.Lead == "" {
				p.Lead = plainText(n, src)
			}
		}
		last.text += " " + blockText(n, src)
	}
}

// blockText returns the text of a block with those in it: paragraphs, cells and code.
func blockText(n ast.Node, src []byte) string {
	if n.Type() == ast.TypeBlock {
		switch n.(type) {
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			return string(n.Lines().Value(src))
		case *ast.HTMLBlock:
			return ""
		}
	}
	if first := n.FirstChild(); first == nil || first.Type() == ast.TypeInline {
		return plainText(n, src)
	}
	var all []string
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		all = append(all, blockText(c, src))
	}
	return strings.Join(all, " ")
}

// address returns the address of a link or a picture of a page.
func (s *Site) address(source, link string) string {
	if strings.Contains(link, ":") || strings.HasPrefix(link, "#") {
		return link
	}
	file, fragment, _ := strings.Cut(link, "#")
	if fragment != "" {
		fragment = "#" + fragment
	}
	target := path.Join("docs", path.Dir(source), file)
	name, inside := strings.CutPrefix(target, "docs/")
	switch {
	case inside && slices.Contains(s.sources, name):
		return relative(source, pagePath(name)) + fragment
	case inside && slices.Contains(copied, path.Ext(name)):
		return relative(source, name)
	}
	return s.inRepository(target) + fragment
}

// slug returns the fragment of a heading, as GitHub makes it.
func slug(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

// nodes renders headings with links to them, code with colours, pictures, tables that scroll, and no comments.
type nodes struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (nodes) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, renderHeading)
	r.Register(ast.KindFencedCodeBlock, renderCode)
	r.Register(ast.KindCodeBlock, renderCode)
	r.Register(ast.KindImage, renderPicture)
	r.Register(ast.KindCodeSpan, renderCodeSpan)
	r.Register(east.KindTable, renderTable)
	r.Register(ast.KindHTMLBlock, skip)
	r.Register(ast.KindRawHTML, skip)
}

func renderHeading(w util.BufWriter, src []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	h := n.(*ast.Heading)
	id, _ := h.AttributeString("id")
	switch {
	case entering && h.Level == 1:
		_, _ = w.WriteString("<h1>")
	case entering:
		fmt.Fprintf(w, `<h%d id="%s">`, h.Level, id)
	case h.Level == 1:
		_, _ = w.WriteString("</h1>\n")
	default:
		fmt.Fprintf(w, ` <a class="anchor" href="#%s" aria-label="Link to “%s”">#</a></h%d>`+"\n", id,
			html.EscapeString(plainText(h, src)), h.Level)
	}
	return ast.WalkContinue, nil
}

func renderCode(w util.BufWriter, src []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	language := ""
	if fenced, ok := n.(*ast.FencedCodeBlock); ok {
		language = string(fenced.Language(src))
	}
	fmt.Fprintf(w, `<div class="code"><pre tabindex="0"><code>%s</code></pre></div>`+"\n",
		highlight(language, string(n.Lines().Value(src))))
	return ast.WalkSkipChildren, nil
}

// longCode is the number of characters from which code in a line may break.
const longCode = 16

func renderCodeSpan(w util.BufWriter, src []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		text := plainText(n, src)
		code := html.EscapeString(text)
		if len(text) > longCode {
			code = string(manual.Breakable(text))
		}
		_, _ = w.WriteString("<code>" + code + "</code>")
	}
	return ast.WalkSkipChildren, nil
}

// renderPicture renders a picture that leads to itself, because a telephone shows it too small.
func renderPicture(w util.BufWriter, src []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		at := html.EscapeString(string(n.(*ast.Image).Destination))
		fmt.Fprintf(w, `<a class="picture" href="%s"><img src="%s" alt="%s"></a>`, at, at, html.EscapeString(plainText(n, src)))
	}
	return ast.WalkSkipChildren, nil
}

func renderTable(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString(`<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>` + "\n")
	} else {
		_, _ = w.WriteString("</table></div>\n")
	}
	return ast.WalkContinue, nil
}

func skip(util.BufWriter, []byte, ast.Node, bool) (ast.WalkStatus, error) {
	return ast.WalkSkipChildren, nil
}

// rawText returns the HTML of a node.
func rawText(n ast.Node, src []byte) string {
	if inline, ok := n.(*ast.RawHTML); ok {
		return string(inline.Segments.Value(src))
	}
	return string(n.Lines().Value(src))
}
