package contract

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Visit is called with a minimal request body that has a value at path, such as
// "tools[0].environment". It returns whether to visit the fields of the value.
type Visit func(path string, body any) (descend bool)

// Walk visits a body for each field of the operation's request, with each value of an
// enumeration and each alternative, one at a time. base is a valid body to which the field
// is added. known has values for paths where the schema does not determine a valid one, such
// as an id.
func (op *Operation) Walk(base map[string]any, known map[string]any, visit Visit) {
	w := walker{document: op.document, known: known, visit: visit}
	schema := w.merged(op.Request["application/json"])
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		w.walk(properties[name], name, func(v any) any {
			body := maps.Clone(base)
			body[name] = v
			return body
		})
	}
}

type walker struct {
	document *Document
	known    map[string]any
	visit    Visit
	within   []string // names of the enclosing schemas, to stop at recursive ones
}

// walk visits the values of a schema at path; wrap puts one into a body.
func (w *walker) walk(schema any, path string, wrap func(any) any) {
	if v, ok := w.knownAt(path); ok {
		w.visit(path, wrap(v))
		return
	}
	s, name := w.follow(schema)
	if name != "" && slices.Contains(w.within, name) {
		w.visit(path, wrap(w.minimal(s, path)))
		return
	}
	if name != "" {
		w.within = append(w.within, name)
		defer func() { w.within = w.within[:len(w.within)-1] }()
	}
	alternatives, _ := s["anyOf"].([]any)
	if alternatives != nil && s["properties"] == nil {
		for _, a := range alternatives {
			if a, _ := w.follow(a); a["type"] != "null" {
				w.walk(a, path, wrap)
			}
		}
		return
	}
	s = w.merged(s)
	enum, _ := s["enum"].([]any)
	for _, v := range enum {
		w.visit(path, wrap(v))
	}
	switch {
	case enum != nil:
	case s["type"] == "boolean":
		w.visit(path, wrap(true))
		w.visit(path, wrap(false))
	case s["type"] == "array":
		w.walk(s["items"], path+"[0]", func(v any) any { return wrap([]any{v}) })
	default:
		least := w.minimal(s, path)
		if w.visit(path, wrap(least)) {
			w.fields(s, least, path, wrap)
		}
	}
}

// fields visits the fields of an object, each added to the minimal object.
func (w *walker) fields(s map[string]any, least any, path string, wrap func(any) any) {
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		w.walk(properties[name], path+"."+name, func(v any) any {
			o := maps.Clone(least.(map[string]any))
			o[name] = v
			return wrap(o)
		})
	}
}

// minimal returns a minimal value that a schema allows.
func (w *walker) minimal(schema any, path string) any {
	if v, ok := w.knownAt(path); ok {
		return v
	}
	s, _ := w.follow(schema)
	if alternatives, _ := s["anyOf"].([]any); alternatives != nil && s["properties"] == nil {
		return w.minimal(alternatives[0], path)
	}
	s = w.merged(s)
	if enum, _ := s["enum"].([]any); enum != nil {
		return enum[0]
	}
	switch s["type"] {
	case "string":
		return "x"
	case "integer", "number":
		if least, ok := s["minimum"]; ok {
			return least
		}
		return 1
	case "boolean":
		return true
	case "array":
		if least, _ := s["minItems"].(float64); least > 0 {
			return []any{w.minimal(s["items"], path+"[0]")}
		}
		return []any{}
	case "null":
		return nil
	}
	o := map[string]any{}
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range required {
		if p, ok := properties[name.(string)]; ok {
			o[name.(string)] = w.minimal(p, path+"."+name.(string))
		}
	}
	return o
}

// knownAt looks up a path and its suffixes in known.
func (w *walker) knownAt(path string) (any, bool) {
	for at := path; ; {
		if v, ok := w.known[at]; ok {
			return v, true
		}
		_, rest, found := strings.Cut(at, ".")
		if !found {
			return nil, false
		}
		at = "." + rest
		if v, ok := w.known[at]; ok {
			return v, true
		}
		at = rest
	}
}

// follow resolves references. It returns the schema and the name of the last reference.
func (w *walker) follow(schema any) (map[string]any, string) {
	s, _ := schema.(map[string]any)
	name := ""
	for {
		ref, ok := s["$ref"].(string)
		if !ok {
			return s, name
		}
		name = strings.TrimPrefix(ref, "#/schemas/")
		s, _ = w.document.Schemas[name].(map[string]any)
	}
}

// merged returns a schema with its allOf parts merged.
func (w *walker) merged(schema any) map[string]any {
	s, _ := w.follow(schema)
	parts, ok := s["allOf"].([]any)
	if !ok {
		return s
	}
	out := maps.Clone(s)
	delete(out, "allOf")
	properties, required := map[string]any{}, []any{}
	add := func(s map[string]any) {
		p, _ := s["properties"].(map[string]any)
		maps.Copy(properties, p)
		r, _ := s["required"].([]any)
		required = append(required, r...)
		for k, v := range s {
			if out[k] == nil {
				out[k] = v
			}
		}
	}
	add(s)
	for _, part := range parts {
		add(w.merged(part))
	}
	out["properties"], out["required"] = properties, required
	return out
}

// Generic returns a path without its indexes: tools[].type.
func Generic(path string) string {
	for i := range 2 {
		path = strings.ReplaceAll(path, "["+strconv.Itoa(i)+"]", "[]")
	}
	return path
}
