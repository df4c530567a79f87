// Lint is the one pass of static checks over the code, for `go vet -vettool`, which caches it per package: the
// analyzers of go vet and staticcheck, and those of this module: exported names have doc comments, errors name the
// failed operation when they leave a package, and log messages are constants.
package main

import (
	"reflect"
	"slices"
	"strings"

	"go-simpler.org/sloglint"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/analysis/unitchecker"
)

func main() {
	logs := sloglint.New(&sloglint.Options{StaticMessage: true})
	all := slices.Concat(vet.Suite, staticchecks(), []*analysis.Analyzer{docs, wrap, exceptTests(logs)})
	for _, a := range all {
		if len(a.FactTypes) == 0 {
			only(a, isOwn)
		}
	}
	unitchecker.Main(all...)
}

// only makes an analyzer skip packages whose path match is false for. go vet hands over the dependencies, too, for the
// facts about them, and the driver runs every analyzer there that may use facts: most of the time would go into code
// whose reports nobody reads.
func only(a *analysis.Analyzer, match func(path string) bool) {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		if match(pass.Pkg.Path()) {
			return run(pass)
		}
		if a.ResultType == nil {
			return nil, nil
		}
		return reflect.Zero(a.ResultType).Interface(), nil
	}
}

func isOwn(path string) bool {
	return strings.HasPrefix(path, module) || path == "main"
}

// isStandard reports whether a package is one of Go's own.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// exceptTests applies an analyzer to files that are no tests.
func exceptTests(a *analysis.Analyzer) *analysis.Analyzer {
	return filtered(a, func(pass *analysis.Pass, d analysis.Diagnostic) bool {
		return !isTestFile(pass.Fset.Position(d.Pos).Filename)
	})
}

// filtered returns an analyzer that reports what keep returns true for.
func filtered(a *analysis.Analyzer, keep func(*analysis.Pass, analysis.Diagnostic) bool) *analysis.Analyzer {
	b := *a
	b.Run = func(pass *analysis.Pass) (any, error) {
		inner := *pass
		inner.Report = func(d analysis.Diagnostic) {
			if keep(pass, d) {
				pass.Report(d)
			}
		}
		return a.Run(&inner)
	}
	return &b
}
