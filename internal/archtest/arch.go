// Package archtest checks the project's rules that the compiler does not: the direction of imports,
// which packages may use what, and the length of files.
//
// It parses sources in-process. If it ran the go command instead, the test cache could return an old
// result after a bad import was added.
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Module is the module path.
const Module = "github.com/berth-run/berth"

// maxLines is the maximum length of a file. It does not apply to generated files.
const maxLines = 520

// Anything allows a package to import all packages of the module.
const Anything = "*"

// checkDoors returns a message for each door that may import the store by the table. A door is HTTP and JSON: what it
// stores belongs to a package below it, which other doors can use.
func checkDoors(imports map[string][]string) (broken []string) {
	for pkg, allowed := range imports {
		door := pkg == "api" || pkg == "ssh" || strings.HasPrefix(pkg, "api/")
		if door && slices.ContainsFunc(allowed, func(p string) bool {
			return p == "store" || strings.HasPrefix(p, "store/")
		}) {
			broken = append(broken, fmt.Sprintf("%s is a door and must not import the store", pkg))
		}
	}
	return broken
}

// A file holds the properties of a source file that the rules check.
type file struct {
	pkg, name string
	imports   []string
	doc       bool
	lines     int
	generated bool
	kinds     []string // literals of type store.Kind
	times     []string // uses of what timed lists
}

// Check parses the sources below root and returns a message for each violation.
func Check(root string, imports, bans map[string][]string, clocked []string) ([]string, error) {
	files, err := parse(root)
	if err != nil {
		return nil, err
	}
	broken, err := wideLines(root)
	if err != nil {
		return nil, err
	}
	docs := map[string][]string{}
	for _, f := range files {
		allowed, known := imports[f.pkg]
		if !known && !strings.HasPrefix(f.pkg, "guest/guestpb") {
			broken = append(broken,
				fmt.Sprintf(
					"package %q is not in the table Imports: add it to internal/archtest with its allowed imports",
					f.pkg))
			continue
		}
		broken = append(broken, checkImports(f, allowed, bans)...)
		if f.lines > maxLines && !f.generated {
			broken = append(broken, fmt.Sprintf("%s has %d lines; split it by topic", path.Join(f.pkg, f.name),
				f.lines))
		}
		for _, kind := range f.kinds {
			broken = append(broken,
				fmt.Sprintf("%s declares the store.Kind %s; add it to the table in store/kind.go instead",
					path.Join(f.pkg, f.name), kind))
		}
		if slices.Contains(clocked, f.pkg) {
			for _, use := range f.times {
				broken = append(broken, fmt.Sprintf("%s uses %s; use the package's clock", path.Join(f.pkg, f.name),
					use))
			}
		}
		if f.doc {
			docs[f.pkg] = append(docs[f.pkg], f.name)
		} else if docs[f.pkg] == nil {
			docs[f.pkg] = []string{}
		}
	}
	for pkg, in := range docs {
		if len(in) != 1 && !strings.HasPrefix(pkg, "guest/guestpb") {
			broken = append(broken, fmt.Sprintf("package %q has package comments in %d files %v, want exactly one", pkg,
				len(in), in))
		}
	}
	slices.Sort(broken)
	return slices.Compact(broken), nil
}

func checkImports(f file, allowed []string, bans map[string][]string) []string {
	var broken []string
	for _, imp := range f.imports {
		if only, banned := bans[imp]; banned && !slices.Contains(only, f.pkg) && !f.generated {
			broken = append(broken, fmt.Sprintf("%s imports %s, which only %v may import", path.Join(f.pkg, f.name),
				imp, only))
		}
		own, ok := strings.CutPrefix(imp, Module)
		if !ok || f.generated {
			continue
		}
		own = strings.TrimPrefix(own, "/")
		fits := func(a string) bool {
			return a == Anything || a == own || a != "" && a == "guest/guestpb" && strings.HasPrefix(own, a+"/")
		}
		if !slices.ContainsFunc(allowed, fits) {
			broken = append(broken, fmt.Sprintf("%s imports %q, which is not in its list of allowed imports",
				path.Join(f.pkg, f.name), own))
		}
	}
	if f.pkg == "" {
		for _, imp := range f.imports {
			if strings.Contains(imp, ".") {
				broken = append(broken, fmt.Sprintf("%s imports %s; the nouns import the standard library only", f.name,
					imp))
			}
		}
	}
	return broken
}

// parse parses all sources except tests, testdata and nested modules.
func parse(root string) ([]file, error) {
	var files []file
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		if d.IsDir() {
			return skipDir(rel)
		}
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		ast, err := parser.ParseFile(set, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		files = append(files, look(set, ast, filepath.ToSlash(rel)))
		return nil
	})
	return files, err
}

// skipDir returns fs.SkipDir for hidden directories, testdata and nested modules.
func skipDir(rel string) error {
	name := filepath.Base(rel)
	ownModule := rel == "tools" || rel == filepath.Join("cmd", "berth-runsc") || rel == filepath.Join("e2e",
		"goclients") || rel == filepath.Join("e2e", "dex")
	if rel != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || ownModule) {
		return fs.SkipDir
	}
	return nil
}

func look(set *token.FileSet, a *ast.File, rel string) file {
	f := file{pkg: path.Dir(rel), name: path.Base(rel), doc: a.Doc != nil && strings.TrimSpace(a.Doc.Text()) != "",
		lines: set.File(a.FileStart).LineCount(), generated: ast.IsGenerated(a)}
	if f.pkg == "." {
		f.pkg = ""
	}
	for _, imp := range a.Imports {
		f.imports = append(f.imports, strings.Trim(imp.Path.Value, `"`))
	}
	f.kinds, f.times = kinds(a), times(a)
	return f
}

// times returns the uses of what timed lists.
func times(a *ast.File) (found []string) {
	ast.Inspect(a, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(timed[x.Name], sel.Sel.Name) {
				found = append(found, x.Name+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return found
}

// kinds returns the string literals that a file declares or converts as a store.Kind.
func kinds(a *ast.File) (found []string) {
	literals := func(typ ast.Expr, values []ast.Expr) {
		sel, ok := typ.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "Kind" {
			return
		}
		if x, ok := sel.X.(*ast.Ident); !ok || x.Name != "store" {
			return
		}
		for _, v := range values {
			if lit, ok := v.(*ast.BasicLit); ok {
				found = append(found, lit.Value)
			}
		}
	}
	ast.Inspect(a, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			literals(n.Type, n.Values)
		case *ast.CallExpr:
			literals(n.Fun, n.Args)
		}
		return true
	})
	return found
}
