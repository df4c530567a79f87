package store

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// Each kind and each parent is in the table.
func TestKinds(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "kind.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		lit, ok := spec.Values[0].(*ast.BasicLit)
		if !ok || spec.Names[0].Name == "OfContainer" {
			return true
		}
		name, err := strconv.Unquote(lit.Value)
		if _, known := Kinds[Kind(name)]; !known || err != nil {
			t.Errorf("%s is not in the table: %v", spec.Names[0].Name, err)
		}
		n++
		return true
	})
	if n != len(Kinds) {
		t.Errorf("%d kinds are declared, %d are in the table", n, len(Kinds))
	}
	for kind, parents := range Kinds {
		for _, p := range parents {
			if _, known := Kinds[p]; !known && p != OfContainer {
				t.Errorf("%s belongs to %s, which is not in the table", kind, p)
			}
		}
	}
}
