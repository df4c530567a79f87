package reference

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// An Extension is an object of OpenAI's API with the field "berth".
type Extension struct {
	Object string // where the field is, such as "a shell_call"
	Page   string // of the documentation, with an anchor if it needs one
	Value  any    // of the type of the field
}

// ExtensionsPage returns the tables of the documentation with the fields of "berth", one for each extension. root is
// the directory of the module's sources, from which the texts are read. kinds names types whose fields are not listed.
func ExtensionsPage(root, module string, kinds map[reflect.Type]string, extensions []Extension) string {
	p := extensionsPage{comments: &comments{root: root, module: module, packages: map[string]map[string]string{}},
		kinds: kinds}
	for _, e := range extensions {
		fmt.Fprintf(&p.out, "\n## %s\n\n[Description](%s).\n\n| field | type | |\n|---|---|---|\n",
			strings.ToUpper(e.Object[:1])+e.Object[1:], e.Page)
		p.rows(reflect.TypeOf(e.Value), "berth.", nil)
	}
	return p.out.String()
}

type extensionsPage struct {
	out      strings.Builder
	comments *comments
	kinds    map[reflect.Type]string
}

// rows writes a row for each field of a struct, and for each field of structs in them. within are the structs around
// it.
func (p *extensionsPage) rows(t reflect.Type, prefix string, within []reflect.Type) {
	if slices.Contains(within, t) {
		return
	}
	within = append(within, t)
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag == "-" || f.Anonymous && tag == "" || len(f.Index) > 1 && !promoted(t, f) {
			continue
		}
		name := prefix + cmp.Or(tag, strings.ToLower(f.Name))
		kind, inner, more := p.typeName(f.Type)
		text := p.comments.ofField(owner(t, f), f.Name)
		if text == "" && inner != nil {
			text = p.comments.ofType(inner)
		}
		fmt.Fprintf(&p.out, "| `%s` | %s | %s |\n", name, kind, cell(text))
		if inner != nil && inner.PkgPath() != "" {
			p.rows(inner, name+more, within)
		}
	}
}

// cell returns a text for a cell of a table.
func cell(text string) string {
	if text != "" {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text)
}

// typeName returns the name of a type in JSON. If it holds objects of a struct, it returns that and what separates the
// names of their fields from its own.
func (p *extensionsPage) typeName(t reflect.Type) (kind string, inner reflect.Type, more string) {
	if name := p.kinds[t]; name != "" {
		return name, nil, ""
	}
	switch t.Kind() {
	case reflect.Pointer:
		return p.typeName(t.Elem())
	case reflect.Bool:
		return "boolean", nil, ""
	case reflect.String:
		return "string", nil, ""
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Int32:
		return "integer", nil, ""
	case reflect.Float64:
		return "number", nil, ""
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "any", nil, ""
		}
		of, inner, _ := p.typeName(t.Elem())
		return "list of " + of, inner, "[]."
	case reflect.Map:
		of, _, _ := p.typeName(t.Elem())
		return "map to " + of, nil, ""
	case reflect.Struct:
		return "object", t, "."
	}
	return "any", nil, ""
}
