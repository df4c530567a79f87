package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Messages point to the documentation by URL: who installs a package has no directory docs.
func TestPointers(t *testing.T) {
	page := regexp.MustCompile(`(^|[^/\w])docs/[a-z0-9-]+\.md`)
	texts := 0
	for _, dir := range []string{".", "../../server"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
					if texts++; page.MatchString(text.Value) {
						t.Errorf("%s: %s names a page by its path", set.Position(text.Pos()), text.Value)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if texts < 1000 {
		t.Errorf("read %d texts", texts)
	}
}
