package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	spanPattern = regexp.MustCompile("`([^`\n]+)`")
	// filePattern matches the path of a file or, with a slash at its end, of a directory.
	filePattern = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)*(\.\w+|/)$`)
	// namePattern matches a name in a package, or a method or field of a type.
	namePattern = regexp.MustCompile(`^\w+\.\w+(\.\w+)?$`)
	// stationPattern matches a line of a drawing that names a function in a file or a package.
	stationPattern = regexp.MustCompile(`^ *\d* *│ ([a-z]\w*/[\w/.]*) +(\w+(?:\.\w+)?)  `)
)

// source holds the declared names of a repository's Go files, without tests.
type source struct {
	files map[string]map[string]bool // the names of a file, by its path; methods and fields as Type.Name
	words map[string]bool            // package and type names, with which a qualified name starts
}

// LostNames returns what a page of root names in code that does not exist: files, directories and
// qualified Go names. A line of a drawing such as " 1 │ api/response.go  create  …" names a function
// and where it is. A bare file name in a line is in the directory of the path before it.
func LostNames(root, page string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, fmt.Errorf("read page: %w", err)
	}
	src, err := readSource(root)
	if err != nil {
		return nil, err
	}
	var lost []string
	for i, line := range strings.Split(string(text), "\n") {
		for _, problem := range src.lostIn(root, line) {
			lost = append(lost, fmt.Sprintf("%s:%d: %s", page, i+1, problem))
		}
	}
	return lost, nil
}

func (s *source) lostIn(root, line string) (lost []string) {
	if m := stationPattern.FindStringSubmatch(line); m != nil && !s.declares(m[1], m[2]) {
		lost = append(lost, m[1]+" declares no "+m[2])
	}
	dir := ""
	for _, m := range spanPattern.FindAllStringSubmatch(line, -1) {
		code := m[1]
		switch {
		case strings.HasSuffix(code, ".go") || strings.Contains(code, "/") && filePattern.MatchString(code):
			if !strings.Contains(code, "/") {
				code = path.Join(dir, code)
			}
			dir = path.Dir(code)
			if _, err := os.Stat(filepath.Join(root, code)); err != nil {
				lost = append(lost, "there is no "+code)
			}
		case namePattern.MatchString(code):
			first, _, _ := strings.Cut(code, ".")
			if s.words[first] && !s.declares("", code) {
				lost = append(lost, "there is no "+code)
			}
		}
	}
	return lost
}

// declares reports whether a file, or a file below a directory, declares a name.
func (s *source) declares(where, name string) bool {
	for file, names := range s.files {
		if (file == where || where == "" || strings.HasPrefix(file, strings.TrimSuffix(where, "/")+"/")) &&
			names[name] {
			return true
		}
	}
	return false
}

func readSource(root string) (*source, error) {
	s := &source{files: map[string]map[string]bool{}, words: map[string]bool{}}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") &&
			name != root) {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		return s.read(name, filepath.ToSlash(rel))
	})
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	return s, nil
}

func (s *source) read(name, rel string) error {
	f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse file: %w", err)
	}
	names := map[string]bool{}
	s.files[rel], s.words[f.Name.Name] = names, true
	add := func(name string) { names[name], names[f.Name.Name+"."+name] = true, true }
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			add(decl.Name.Name)
			if decl.Recv != nil {
				add(receiver(decl.Recv.List[0].Type) + "." + decl.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						add(id.Name)
					}
				case *ast.TypeSpec:
					add(spec.Name.Name)
					s.words[spec.Name.Name] = true
					for _, member := range members(spec.Type) {
						add(spec.Name.Name + "." + member)
					}
				}
			}
		}
	}
	return nil
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// members returns the names of a struct's fields, or of an interface's methods.
func members(e ast.Expr) (names []string) {
	var list *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		list = e.Fields
	case *ast.InterfaceType:
		list = e.Methods
	default:
		return nil
	}
	for _, field := range list.List {
		for _, id := range field.Names {
			names = append(names, id.Name)
		}
	}
	return names
}
