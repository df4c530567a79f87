package manual

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// A document has the parts of an OpenAPI document that the pages show.
type document struct {
	Info       struct{ Title, Description, Version string }
	Tags       []struct{ Name string }
	Paths      map[string]map[string]*operation
	Components struct{ Schemas map[string]*schema }

	sections []*section
	users    map[string][]*operation // by the name of a schema that a body or an answer has
}

// A section is a tag with its operations.
type section struct {
	Name, Slug string
	Operations []*operation
}

// An operation is a route with a method.
type operation struct {
	Summary      string
	OperationID  string `json:"operationId"`
	Tags         []string
	Own          bool `json:"x-berth"`
	ExternalDocs *struct{ URL string }
	Security     *[]any // an empty list needs no key
	Parameters   []*parameter
	RequestBody  *body
	Responses    map[string]*body

	Method, Path string   `json:"-"`
	Section      string   `json:"-"` // the slug
	Bodies       []*media `json:"-"`
	Answers      []*media `json:"-"`
}

// Keyless reports whether the operation needs no key.
func (o *operation) Keyless() bool { return o.Security != nil && len(*o.Security) == 0 }

type parameter struct {
	Name, In, Description string
	Required              bool
	Schema                *schema
	Type                  []part `json:"-"`
}

// A body is what a request or an answer contains.
type body struct {
	Required bool
	Content  map[string]struct{ Schema *schema }
}

// A media is a body or an answer in one form.
type media struct {
	Kind  string // such as application/json
	Shape *shape
}

// A schema is a JSON Schema.
type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any    // a name or a list of names
	Description          string
	Properties           map[string]*schema
	Required             []string
	Items                *schema
	AdditionalProperties any
	AnyOf, OneOf, AllOf  []*schema
	Enum                 []any
	Const                any
	Format               string
	Minimum, Maximum     *float64
}

// A shape is a schema as a page shows it.
type shape struct {
	Type   []part
	Text   string
	Fields []*field
	Of     [][]part // the alternatives
}

// A field is a property of an object.
type field struct {
	Name     string
	Required bool
	Type     []part
	Text     string
	Inner    *shape // of an object without a name
}

// A part is a piece of a type's text. Schema is the name of the schema that it is, or "".
type part struct{ Text, Schema string }

// methods is the order of the methods of a path.
var methods = []string{"get", "post", "put", "patch", "delete", "head", "options"}

// build fills in what the pages need.
func (d *document) build() {
	d.users = map[string][]*operation{}
	bySlug := map[string]*section{}
	for _, tag := range d.Tags {
		s := &section{Name: tag.Name, Slug: slug(tag.Name)}
		d.sections, bySlug[s.Slug] = append(d.sections, s), s
	}
	for _, path := range slices.SortedFunc(maps.Keys(d.Paths), comparePaths) {
		for _, method := range methods {
			op := d.Paths[path][method]
			if op == nil || len(op.Tags) == 0 || bySlug[slug(op.Tags[0])] == nil {
				continue
			}
			op.Method, op.Path, op.Section = strings.ToUpper(method), path, slug(op.Tags[0])
			for _, p := range op.Parameters {
				p.Type = d.typeOf(p.Schema)
			}
			op.Bodies = d.medias(op, op.RequestBody)
			op.Answers = d.medias(op, op.Responses["200"])
			s := bySlug[op.Section]
			s.Operations = append(s.Operations, op)
		}
	}
}

// comparePaths orders paths, those of the API first.
func comparePaths(a, b string) int {
	if v1 := strings.HasPrefix(a, "/v1/"); v1 != strings.HasPrefix(b, "/v1/") {
		if v1 {
			return -1
		}
		return 1
	}
	return cmp.Compare(a, b)
}

// medias returns the forms of a body or of an answer.
func (d *document) medias(op *operation, c *body) []*media {
	if c == nil {
		return nil
	}
	var all []*media
	for _, kind := range slices.Sorted(maps.Keys(c.Content)) {
		s := c.Content[kind].Schema
		all = append(all, &media{kind, d.shape(d.resolve(s), 0)})
		for _, p := range d.typeOf(s) {
			if p.Schema != "" && !slices.Contains(d.users[p.Schema], op) {
				d.users[p.Schema] = append(d.users[p.Schema], op)
			}
		}
		all[len(all)-1].Shape.Type = d.typeOf(s)
	}
	return all
}

const prefix = "#/components/schemas/"

// resolve returns the schema to which another one refers.
func (d *document) resolve(s *schema) *schema {
	for range 10 {
		if s == nil || s.Ref == "" {
			return s
		}
		s = d.Components.Schemas[strings.TrimPrefix(s.Ref, prefix)]
	}
	return s
}

// maxDepth is how deep objects without a name are shown.
const maxDepth = 3

// shape returns a schema as a page shows it.
func (d *document) shape(s *schema, depth int) *shape {
	out := &shape{}
	if s == nil {
		return out
	}
	out.Type, out.Text = d.typeOf(s), s.Description
	for _, all := range s.AllOf {
		if more := d.resolve(all); more != nil && depth < maxDepth {
			out.Fields = append(out.Fields, d.shape(more, depth+1).Fields...)
		}
	}
	for _, one := range append(slices.Clone(s.AnyOf), s.OneOf...) {
		out.Of = append(out.Of, d.typeOf(one))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		f := &field{Name: name, Required: slices.Contains(s.Required, name), Type: d.typeOf(p), Text: p.Description}
		inner := p
		if inner.Items != nil {
			inner = inner.Items
		}
		if len(inner.Properties) > 0 && depth < maxDepth {
			f.Inner = d.shape(inner, depth+1)
		}
		out.Fields = append(out.Fields, f)
	}
	slices.SortStableFunc(out.Fields, func(a, b *field) int {
		if a.Required != b.Required {
			if a.Required {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return out
}

// typeOf returns the text of a type, with the names of schemas.
func (d *document) typeOf(s *schema) []part {
	switch {
	case s == nil:
		return []part{{Text: "any"}}
	case s.Ref != "":
		name := strings.TrimPrefix(s.Ref, prefix)
		return []part{{name, name}}
	case len(s.Enum) > 0:
		return []part{{Text: oneOf(s.Enum)}}
	case s.Const != nil:
		return []part{{Text: oneOf([]any{s.Const})}}
	case len(s.AnyOf)+len(s.OneOf) > 0:
		var parts []part
		for i, one := range append(slices.Clone(s.AnyOf), s.OneOf...) {
			if i > 0 {
				parts = append(parts, part{Text: " or "})
			}
			parts = append(parts, d.typeOf(one)...)
		}
		return parts
	case s.Items != nil:
		return append([]part{{Text: "list of "}}, d.typeOf(s.Items)...)
	}
	var name string
	switch t := s.Type.(type) {
	case string:
		name = t
	case []any:
		var names []string
		for _, one := range t {
			text, _ := one.(string)
			names = append(names, text)
		}
		name = strings.Join(names, " or ")
	}
	switch {
	case name == "" && len(s.AllOf) > 0:
		return d.typeOf(s.AllOf[0])
	case s.Format == "binary":
		name = "bytes"
	}
	return []part{{Text: cmp.Or(name, "any")}}
}
