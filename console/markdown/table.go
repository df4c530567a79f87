package markdown

import (
	"bytes"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// boundedTables are the tables of GitHub's Markdown. Each row of a table is filled up to the
// columns of its head, so n bytes could have n²/8 cells. Here, a text has maxCells.
type boundedTables struct{}

// Extend implements goldmark.Extender.
func (boundedTables) Extend(m goldmark.Markdown) {
	m.Parser().AddOptions(
		parser.WithParagraphTransformers(util.Prioritized(tableBound{extension.NewTableParagraphTransformer()}, 200)),
		parser.WithASTTransformers(util.Prioritized(extension.NewTableASTTransformer(), 0)))
	aligned := extension.NewTableHTMLRenderer(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))
	m.Renderer().AddOptions(renderer.WithNodeRenderers(util.Prioritized(aligned, 500)))
}

// cellsKey is the number of cells that the tables of a text have so far.
var cellsKey = parser.NewContextKey()

// A tableBound makes tables of paragraphs until the text has maxCells. Others stay paragraphs.
type tableBound struct{ parser.ParagraphTransformer }

// Transform implements parser.ParagraphTransformer.
func (b tableBound) Transform(node *ast.Paragraph, reader text.Reader, pc parser.Context) {
	columns, rows := 0, node.Lines().Len()
	for i := range rows {
		line := node.Lines().At(i)
		if raw := line.Value(reader.Source()); bytes.IndexByte(raw, '-') >= 0 &&
			len(bytes.Trim(raw, "|:- \t\v\f\r\n")) == 0 {
			columns = max(columns, bytes.Count(raw, []byte("|"))+1)
		}
	}
	cells, _ := pc.Get(cellsKey).(int)
	if cells += rows * columns; cells > maxCells {
		return
	}
	pc.Set(cellsKey, cells)
	b.ParagraphTransformer.Transform(node, reader, pc)
}
