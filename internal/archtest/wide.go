package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const (
	// maxColumns is the maximum width of a line. A tab counts tabColumns.
	maxColumns = 120
	tabColumns = 4
	// longText is the length of a string literal in bytes from which its lines may be wider: texts of errors and
	// logs are found by searching for them, so they are not broken.
	longText = 40
)

// wideLines returns a message for each line that is too wide. Tests may have wide tables.
func wideLines(root string) ([]string, error) {
	var broken []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipDir(rel)
		}
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		wide, err := wideIn(source)
		if err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
		for _, line := range wide {
			broken = append(broken, fmt.Sprintf("%s:%d is wider than %d columns",
				filepath.ToSlash(rel), line, maxColumns))
		}
		return nil
	})
	return broken, err
}

// wideIn returns the numbers of the lines of a file that are too wide.
func wideIn(source []byte) ([]int, error) {
	var wide []int
	n := 0
	for line := range strings.Lines(string(source)) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if utf8.RuneCountInString(line)+(tabColumns-1)*strings.Count(line, "\t") > maxColumns {
			wide = append(wide, n)
		}
	}
	if wide == nil {
		return nil, nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	texts := map[int]bool{} // lines with a long literal
	ast.Inspect(file, func(node ast.Node) bool {
		lit, ok := node.(*ast.BasicLit)
		if ok && lit.Kind == token.STRING && len(lit.Value) >= longText {
			for at := set.Position(lit.Pos()).Line; at <= set.Position(lit.End()).Line; at++ {
				texts[at] = true
			}
		}
		return true
	})
	var broken []int
	for _, n := range wide {
		if !texts[n] {
			broken = append(broken, n)
		}
	}
	return broken, nil
}
