package markdown

import (
	"cmp"
	"html/template"
	"net/url"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// safeNodes renders the nodes through which a text could do more than be read.
type safeNodes struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (safeNodes) RegisterFuncs(on renderer.NodeRendererFuncRegisterer) {
	on.Register(ast.KindHTMLBlock, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus,
		error) {
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
	on.Register(ast.KindRawHTML, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus,
		error) {
		if entering {
			_, _ = w.Write(util.EscapeHTML(n.(*ast.RawHTML).Segments.Value(source)))
		}
		return ast.WalkSkipChildren, nil
	})
	on.Register(ast.KindLink, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		return ast.WalkContinue, link(w, string(n.(*ast.Link).Destination), entering)
	})
	on.Register(ast.KindImage, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		return ast.WalkContinue, link(w, string(n.(*ast.Image).Destination), entering)
	})
	on.Register(ast.KindAutoLink, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus,
		error) {
		auto := n.(*ast.AutoLink)
		if !entering {
			return ast.WalkSkipChildren, nil
		}
		to := string(auto.URL(source))
		if auto.AutoLinkType == ast.AutoLinkEmail {
			to = "mailto:" + to
		}
		err := link(w, to, true)
		_, _ = w.Write(util.EscapeHTML(auto.Label(source)))
		return ast.WalkSkipChildren, cmp.Or(err, link(w, to, false))
	})
}

// link writes the start or the end of a link, or of its text alone if its scheme is another
// than those of Render. A text may have thousands of links to one long address: the error
// of a full writer ends the rendering.
func link(w util.BufWriter, to string, entering bool) error {
	u, err := url.Parse(to)
	tag := "</a>"
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "mailto":
		if tag = "</span>"; entering {
			tag = "<span>"
		}
	case entering:
		tag = `<a target="_blank" rel="noopener noreferrer nofollow" href="` + template.HTMLEscapeString(to) + `">`
	}
	_, err = w.WriteString(tag)
	return err
}
