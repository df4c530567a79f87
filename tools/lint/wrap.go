package main

import (
	"go/ast"
	"strings"

	"github.com/tomarrell/wrapcheck/v2/wrapcheck"
	"golang.org/x/tools/go/analysis"
)

const module = "github.com/berth-run/berth"

// wrap applies wrapcheck to errors that leave a package. It skips commands, tests, generated code, and
// methods that encoding/json calls, which adds the operation itself.
var wrap = &analysis.Analyzer{Name: "wrap", Doc: "report errors that do not name the failed operation", Run: checkWrap}

func checkWrap(pass *analysis.Pass) (any, error) {
	own := strings.TrimPrefix(strings.TrimPrefix(pass.Pkg.Path(), module), "/")
	switch own {
	case "", // clients see errors in their JSON unwrapped
		"internal/beneath": // Root.at wraps what its function literals return
		return nil, nil
	}
	if pass.Pkg.Name() == "main" {
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
		// they name the operation, or pass errors of what they call, write to or read from
		"(*archive/tar.Writer)", "(*bufio.", "fmt.Fprint", "(*net/http.Client).Do(", "net/http.NewRequestWithContext(",
		"(*net/http.Transport).RoundTrip(", "(net/http.RoundTripper).RoundTrip(", "(net/http.ResponseWriter).Write(",
		"os/exec.", "os/user.Lookup(", "(*golang.org/x/sync/errgroup.Group).Wait(",
		"(*golang.org/x/sync/singleflight.Group).Do(",
		"compress/gzip.NewReader(", "github.com/klauspost/compress/zstd.NewReader(",
		"github.com/google/go-containerregistry/pkg/v1.SHA256(",
		"github.com/google/go-containerregistry/pkg/name.ParseReference(",
		"github.com/google/go-containerregistry/pkg/v1/remote.NewPuller(",
		// the guest's answers, with texts and codes that clients read, and the stream that carries them
		"connectrpc.com/connect.NewError(", "(*connectrpc.com/connect.ServerStream[",
	}
	config.IgnorePackageGlobs = []string{
		"os", "io", "io/fs", "path/filepath", "net", "context", // they name operation and path, or are conditions
		module + "*", module + "/*", // they wrap at their own borders
	}
	config.IgnoreInterfaceRegexps = []string{`^(io|fs)\.`, `^(Reader|Writer|Closer|ReadCloser|WriteCloser|ReadWriter)$`}
	return config
}
