package console

import (
	"bytes"
	"html/template"
	"net/url"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/util"
)

// markdown returns the HTML of a text from a model, a user or a program. The text decides
// nothing but its form: HTML in it is shown as text, an image is a link, and a link leads to
// http, https or mailto, in a window that does not learn where it came from.
func markdown(text string) template.HTML {
	var b bytes.Buffer
	if costly(text) {
		return template.HTML("<pre>" + template.HTMLEscapeString(text) + "</pre>")
	}
	if err := converter().Convert([]byte(text), &b); err != nil {
		return template.HTML("<pre>" + template.HTMLEscapeString(text) + "</pre>")
	}
	return template.HTML(b.String())
}

// Bounds of Markdown. The converter needs time in the square of these.
const (
	maxMarks = 2000 // in a paragraph
	maxDepth = 16   // of quotes and lists
)

// costly reports whether a text would take long to convert, unlike texts that people write.
func costly(text string) bool {
	marks := 0
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			marks = 0
			continue
		}
		start := strings.TrimLeft(line, "> \t-*+")
		markers := line[:len(line)-len(start)]
		if strings.Count(markers, ">")+strings.Count(markers, "- ")+strings.Count(markers, "* ")+strings.Count(markers, "+ ") > maxDepth {
			return true
		}
		for i := range len(start) {
			if strings.IndexByte("*_~[]`<", start[i]) >= 0 {
				marks++
			}
		}
		if marks > maxMarks {
			return true
		}
	}
	return false
}

// converter is made when the first text is shown.
var converter = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)),
		extension.Strikethrough, extension.Linkify),
		goldmark.WithRendererOptions(html.WithHardWraps(), renderer.WithNodeRenderers(util.Prioritized(safeNodes{}, 1))))
})

// safeNodes renders the nodes through which a text could do more than be read.
type safeNodes struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (safeNodes) RegisterFuncs(on renderer.NodeRendererFuncRegisterer) {
	on.Register(ast.KindHTMLBlock, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		block := n.(*ast.HTMLBlock)
		if !entering {
			return ast.WalkContinue, nil
		}
		_, _ = w.WriteString("<pre>")
		for i := range block.Lines().Len() {
			line := block.Lines().At(i)
			_, _ = w.Write(util.EscapeHTML(line.Value(source)))
		}
		if block.HasClosure() {
			_, _ = w.Write(util.EscapeHTML(block.ClosureLine.Value(source)))
		}
		_, _ = w.WriteString("</pre>\n")
		return ast.WalkSkipChildren, nil
	})
	on.Register(ast.KindRawHTML, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			_, _ = w.Write(util.EscapeHTML(n.(*ast.RawHTML).Segments.Value(source)))
		}
		return ast.WalkSkipChildren, nil
	})
	on.Register(ast.KindLink, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		link(w, string(n.(*ast.Link).Destination), entering)
		return ast.WalkContinue, nil
	})
	on.Register(ast.KindImage, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		link(w, string(n.(*ast.Image).Destination), entering)
		return ast.WalkContinue, nil
	})
	on.Register(ast.KindAutoLink, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		auto := n.(*ast.AutoLink)
		if entering {
			to := string(auto.URL(source))
			if auto.AutoLinkType == ast.AutoLinkEmail {
				to = "mailto:" + to
			}
			link(w, to, true)
			_, _ = w.Write(util.EscapeHTML(auto.Label(source)))
			link(w, to, false)
		}
		return ast.WalkSkipChildren, nil
	})
}

// link writes the start or the end of a link, or of its text alone if its scheme is another
// than those of markdown.
func link(w util.BufWriter, to string, entering bool) {
	u, err := url.Parse(to)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "mailto":
		if entering {
			_, _ = w.WriteString("<span>")
		} else {
			_, _ = w.WriteString("</span>")
		}
	case entering:
		_, _ = w.WriteString(`<a target="_blank" rel="noopener noreferrer nofollow" href="` + template.HTMLEscapeString(to) + `">`)
	default:
		_, _ = w.WriteString("</a>")
	}
}
