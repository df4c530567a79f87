package main

import (
	"go/token"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"honnef.co/go/tools/analysis/facts/directives"
	"honnef.co/go/tools/analysis/facts/nilness"
	"honnef.co/go/tools/analysis/facts/purity"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

// staticchecks returns the analyzers that the command staticcheck runs by default. As there, a comment
// //lint:ignore CHECK REASON excludes a line, and //lint:file-ignore a file.
func staticchecks() []*analysis.Analyzer {
	var all []*analysis.Analyzer
	for _, a := range slices.Concat(simple.Analyzers, staticcheck.Analyzers, stylecheck.Analyzers) {
		if !a.Doc.NonDefault {
			all = append(all, exceptIgnored(a.Analyzer))
		}
	}
	// These compute facts from a package's intermediate representation, which is the first of them. Those of other
	// modules would take longer than all of Berth.
	for _, a := range append([]*analysis.Analyzer{purity.Analyzer.Requires[0], purity.Analyzer, nilness.Analysis},
		all...) {
		if a.ResultType != nil || len(a.FactTypes) > 0 {
			only(a, func(path string) bool { return isOwn(path) || isStandard(path) })
		}
	}
	return append(all, exceptIgnored(unusedObjects))
}

// unusedObjects reports what staticcheck's analyzer for unused code finds, which itself reports nothing. go vet
// hands over a package with its tests, so an object that only a test uses counts as used, as in staticcheck.
var unusedObjects = &analysis.Analyzer{
	Name:     "U1000",
	Doc:      "report unused code",
	Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		for _, object := range pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result).Unused {
			pass.Reportf(position(pass, object.Position), "%s %s is unused", object.Kind, object.Name)
		}
		return nil, nil
	},
}

// position returns the place of a resolved position in the files of a pass.
func position(pass *analysis.Pass, at token.Position) token.Pos {
	for _, f := range pass.Files {
		if file := pass.Fset.File(f.Pos()); file.Name() == at.Filename {
			return file.LineStart(at.Line) + token.Pos(at.Column-1)
		}
	}
	return token.NoPos
}

// exceptIgnored drops reports at which the code has a directive for staticcheck.
func exceptIgnored(a *analysis.Analyzer) *analysis.Analyzer {
	b := filtered(a, func(pass *analysis.Pass, d analysis.Diagnostic) bool {
		return !slices.ContainsFunc(pass.ResultOf[directives.Analyzer].([]lint.Directive),
			func(ignore lint.Directive) bool {
				return ignores(pass.Fset, ignore, a.Name, d.Pos)
			})
	})
	b.Requires = append(slices.Clone(b.Requires), directives.Analyzer)
	return b
}

// ignores reports whether a directive excludes reports of a check at a position.
func ignores(fset *token.FileSet, ignore lint.Directive, check string, pos token.Pos) bool {
	at, there := fset.Position(ignore.Node.Pos()), fset.Position(pos)
	if len(ignore.Arguments) < 2 || at.Filename != there.Filename || !slices.Contains(strings.Split(ignore.Arguments[0],
		","), check) {
		return false
	}
	return ignore.Command == "file-ignore" || ignore.Command == "ignore" && at.Line == there.Line
}
