// Package markdown renders Markdown as HTML for the console.
//
// Texts are hostile: a model, a user or a program in a container wrote them. A text decides
// nothing but its form: HTML in it is shown as text, an image is a link, and a link leads to
// http, https or mailto, in a window that does not learn where it came from.
//
// A small text may need much memory and time. So the output is bounded, and only texts that
// are cheap by count are rendered in this process. A child process without privileges renders
// others, with little memory and time (child.go). What exceeds a bound is shown as it is.
package markdown

import (
	"context"
	"errors"
	"html/template"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/util"
)

// Bounds of the HTML of one text, in bytes. The longest tag for the shortest mark is that of
// a link to an e-mail address: a text of "a@b.c " has 14 times its length.
const (
	growth    = 32
	allowance = 1 << 20 // of a child, for the cells that a table is filled up with
	maxHTML   = 8 << 20
)

// errFull ends the rendering of a text whose HTML is too long.
var errFull = errors.New("the HTML is too long")

// Render returns the HTML of texts, in their order. One child process renders those that are
// not cheap.
func Render(ctx context.Context, texts []string) []template.HTML {
	out := make([]template.HTML, len(texts))
	var costly []int
	for i, text := range texts {
		var ok bool
		switch c := costOf(text); {
		case c.cheap(text):
			if out[i], ok = convert(text, growth*len(text)); !ok {
				out[i] = plain(text)
			}
		case c.excessive():
			out[i] = plain(text)
		default:
			costly = append(costly, i)
		}
	}
	renderApart(ctx, texts, costly, out)
	return out
}

// RenderCheap returns the HTML of a text if it is cheap. Others are shown as they are.
func RenderCheap(text string) template.HTML {
	if costOf(text).cheap(text) {
		if out, ok := convert(text, growth*len(text)); ok {
			return out
		}
	}
	return plain(text)
}

// plain shows a text as it is.
func plain(text string) template.HTML {
	return template.HTML("<pre>" + template.HTMLEscapeString(text) + "</pre>")
}

// convert returns the HTML of a text; ok is false if it has more than most bytes. The result
// of a panic of the converter is the same.
func convert(text string, most int) (out template.HTML, ok bool) {
	defer func() {
		if recover() != nil {
			out, ok = "", false
		}
	}()
	b := &boundedBuffer{most: most}
	if err := converter().Convert([]byte(text), b); err != nil || b.full {
		return "", false
	}
	return template.HTML(b.buf.String()), true
}

// converter is made when the first text is shown.
var converter = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(goldmark.WithExtensions(boundedTables{}, extension.Strikethrough, extension.Linkify),
		goldmark.WithRendererOptions(html.WithHardWraps(), renderer.WithNodeRenderers(util.Prioritized(safeNodes{},
			1))))
})
