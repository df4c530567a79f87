package main

import (
	"go/ast"
	"slices"
	"strings"

	"github.com/tomarrell/wrapcheck/v2/wrapcheck"
	"golang.org/x/tools/go/analysis"
)

const module = "github.com/berth-run/berth"

// unwrapped lists packages, including those below them, with errors that do not name their operation
// yet. Remove a package once its errors are wrapped; add none.
var unwrapped = []string{
	"api", "bundle", "container", "e2e", "guest", "image", "sandbox",
}

// wrap applies wrapcheck to errors that leave a package. It skips commands, tests, generated code, and
// methods that encoding/json calls, which adds the operation itself.
var wrap = &analysis.Analyzer{Name: "wrap", Doc: "report errors that do not name the failed operation", Run: checkWrap}

func checkWrap(pass *analysis.Pass) (any, error) {
	own := strings.TrimPrefix(strings.TrimPrefix(pass.Pkg.Path(), module), "/")
	exempt := func(dir string) bool { return own == dir || strings.HasPrefix(own, dir+"/") }
	switch own {
	case "", // clients see errors in their JSON unwrapped
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
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Pos() <= d.Pos && d.Pos < fn.End() &&
					strings.HasSuffix(fn.Name.Name, "arshalJSON") {
					return
				}
			}
		}
		pass.Report(d)
	}
	return wrapcheck.NewAnalyzer(wrapConfig()).Run(&inner)
}

// wrapConfig excludes errors that already name the operation.
func wrapConfig() wrapcheck.WrapcheckConfig {
	config := wrapcheck.NewDefaultConfig()
	config.ExtraIgnoreSigs = []string{
		"encoding/json.Marshal(", "encoding/json.MarshalIndent(", // of our own types they do not fail
		"cmp.Or[",         // it chooses among errors
		"(*bytes.Buffer)", // it never fails
		"(github.com/yuin/goldmark/util.BufWriter).", // nor does a buffer of this type
		"(*database/sql.Stmt).",                      // the store names the query
		// they name the operation, or pass errors of what they write to or read from
		"(*archive/tar.Writer)", "(*bufio.", "(*net/http.Client).Do(",
	}
	config.IgnorePackageGlobs = []string{
		"os", "io", "io/fs", "path/filepath", "net", "context", // they name operation and path, or are conditions
		module + "*", module + "/*", // they wrap at their own borders
	}
	config.IgnoreInterfaceRegexps = []string{`^(io|fs)\.`, `^(Reader|Writer|Closer|ReadCloser|WriteCloser|ReadWriter)$`}
	return config
}
