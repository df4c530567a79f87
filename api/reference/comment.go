package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// comments are the comments of types and fields, read from the sources.
type comments struct {
	root, module string
	packages     map[string]map[string]string // by import path: texts by "Type" or "Type.Field"
}

// ofType returns the first sentence of a type's doc comment.
func (c *comments) ofType(t reflect.Type) string {
	if strings.Contains(t.Name(), "[") {
		return "" // a comment of no particular type
	}
	text := c.of(t.PkgPath())[t.Name()]
	if end := strings.Index(text, ". "); end >= 0 {
		text = text[:end+1]
	}
	return text
}

// ofField returns the comment of a field.
func (c *comments) ofField(t reflect.Type, field string) string {
	return c.of(t.PkgPath())[base(t.Name())+"."+field]
}

// base returns the name of a type without its parameters.
func base(name string) string {
	name, _, _ = strings.Cut(name, "[")
	return name
}

// of returns the texts of a package; none for a package of another module.
func (c *comments) of(path string) map[string]string {
	if texts, known := c.packages[path]; known {
		return texts
	}
	texts := map[string]string{}
	c.packages[path] = texts
	below, ok := strings.CutPrefix(path, c.module)
	if !ok || path == "" {
		return texts
	}
	dir := filepath.Join(c.root, filepath.FromSlash(below))
	entries, err := os.ReadDir(dir)
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil,
				parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				panic(err)
			}
			read(file, texts)
		}
	}
	return texts
}

// read adds the comments of a file's types.
func read(file *ast.File, texts map[string]string) {
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.TYPE {
			continue
		}
		for _, spec := range decl.Specs {
			spec := spec.(*ast.TypeSpec)
			texts[spec.Name.Name] = flat(decl.Doc)
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						texts[spec.Name.Name+"."+name.Name] = fieldText(f)
					}
				}
			}
		}
	}
}

// fieldText returns the comment at the end of a field's line. The one above it may be that of
// several fields.
func fieldText(f *ast.Field) string {
	text := flat(f.Comment)
	if text == "" {
		return flat(f.Doc)
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func flat(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }
