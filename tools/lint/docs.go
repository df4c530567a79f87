package main

import (
	"go/ast"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// docs reports exported names without a doc comment. A comment on a group, or at the end of a line,
// counts for each of its names, and a type's comment for constants of the type. Methods need no comment,
// because their interface documents them.
var docs = &analysis.Analyzer{Name: "docs", Doc: "report exported names without a doc comment", Run: checkDocs}

func checkDocs(pass *analysis.Pass) (any, error) {
	if pass.Pkg.Name() == "main" || strings.HasSuffix(pass.Pkg.Name(), "_test") {
		return nil, nil
	}
	for _, f := range pass.Files {
		if ast.IsGenerated(f) || isTest(pass, f) {
			continue
		}
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.IsExported() && d.Doc == nil {
					pass.Reportf(d.Pos(), "exported function %s has no doc comment", d.Name.Name)
				}
			case *ast.GenDecl:
				checkGroup(pass, d)
			}
		}
	}
	return nil, nil
}

func isTest(pass *analysis.Pass, f *ast.File) bool {
	return isTestFile(pass.Fset.File(f.Pos()).Name())
}

func isTestFile(name string) bool { return strings.HasSuffix(name, "_test.go") }

func checkGroup(pass *analysis.Pass, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
				pass.Reportf(s.Pos(), "exported type %s has no doc comment", s.Name.Name)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() && s.Type == nil && s.Values != nil && s.Doc == nil && s.Comment == nil &&
					d.Doc == nil {
					pass.Reportf(name.Pos(), "exported %s has no doc comment", name.Name)
				}
			}
		}
	}
}
