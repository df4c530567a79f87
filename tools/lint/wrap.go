package main

import (
	"go/ast"
	"slices"
	"strings"

	"github.com/tomarrell/wrapcheck/v2/wrapcheck"
	"golang.org/x/tools/go/analysis"
)

const module = "github.com/berth-run/berth"

// unwrapped are the packages, and those below them, whose errors do not all say their
// operation yet. Take one off when its errors do; add none.
var unwrapped = []string{
	"api", "bundle", "container", "e2e", "egress", "engine", "guest", "image", "model", "sandbox", "server", "tool",
}

// wrap is wrapcheck where an error leaves a package: not in commands, tests, generated code
// and the methods that encoding/json calls, which adds the operation itself.
var wrap = &analysis.Analyzer{Name: "wrap", Doc: "report errors that do not say which operation failed", Run: checkWrap}

func checkWrap(pass *analysis.Pass) (any, error) {
	own := strings.TrimPrefix(strings.TrimPrefix(pass.Pkg.Path(), module), "/")
	exempt := func(dir string) bool { return own == dir || strings.HasPrefix(own, dir+"/") }
	switch own {
	case "", // the nouns: clients see what is wrong with their JSON in its own words
		"internal/beneath": // Root.at wraps what its function literals return
		return nil, nil
	}
	if pass.Pkg.Name() == "main" || slices.ContainsFunc(unwrapped, exempt) {
		return nil, nil
	}
	inner := *pass
	inner.Files = nil
	for _, f := range pass.Files {
		if !ast.IsGenerated(f) && !isTest(pass, f) {
			inner.Files = append(inner.Files, f)
		}
	}
	inner.Report = func(d analysis.Diagnostic) {
		for _, f := range inner.Files {
			for _, decl := range f.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Pos() <= d.Pos && d.Pos < fn.End() && strings.HasSuffix(fn.Name.Name, "arshalJSON") {
					return
				}
			}
		}
		pass.Report(d)
	}
	return wrapcheck.NewAnalyzer(wrapConfig()).Run(&inner)
}

// wrapConfig returns what need not be wrapped: errors that say the operation already.
func wrapConfig() wrapcheck.WrapcheckConfig {
	config := wrapcheck.NewDefaultConfig()
	config.ExtraIgnoreSigs = []string{
		"encoding/json.Marshal(", "encoding/json.MarshalIndent(", // of our own types they do not fail
		"(*archive/tar.Writer)", "(*bufio.", "(*net/http.Client).Do(", // they name the operation, or pass errors of what they write to or read from
	}
	config.IgnorePackageGlobs = []string{
		"os", "io", "io/fs", "path/filepath", "net", "context", // they name operation and path, or are conditions
		module + "*", module + "/*", // they wrap at their own borders
	}
	config.IgnoreInterfaceRegexps = []string{`^(io|fs)\.`, `^(Reader|Writer|Closer|ReadCloser|WriteCloser|ReadWriter)$`}
	return config
}
