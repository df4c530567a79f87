package reference

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

type object = map[string]any

// namedStruct is a struct with a component: one for answers and one for requests, in which other fields
// are required.
type namedStruct struct {
	reflect.Type
	request bool
}

// A schemer makes JSON Schemas of Go types, one component for each named struct.
type schemer struct {
	components object                  // the schemas by name
	taken      map[string]bool         // names that OpenAI's schemas have
	names      map[namedStruct]string  // of the components of structs
	special    map[reflect.Type]object // of types that marshal themselves
	comments   *comments
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// schema returns the schema of a type. In the schema of a request no field is required by its
// type.
func (s *schemer) schema(t reflect.Type, request bool) object {
	if special, ok := s.special[t]; ok {
		return special
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		return object{}
	case t.Kind() == reflect.Pointer:
		return s.schema(t.Elem(), request)
	case t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler):
		panic(fmt.Sprintf("reference: no schema is given for %s, which marshals itself", t))
	case t.Implements(textMarshaler):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": s.schema(t.Elem(), request)}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.schema(t.Elem(), request)}
	case reflect.Struct:
		return s.structure(t, request)
	}
	panic(fmt.Sprintf("reference: %s has no schema", t))
}

// structure returns the schema of a struct: a reference if it has a name.
func (s *schemer) structure(t reflect.Type, request bool) object {
	if t.Name() == "" {
		return s.fields(t, request)
	}
	name, known := s.names[namedStruct{t, request}]
	if !known {
		suffix := ""
		if request {
			suffix = "Param"
		}
		name = s.name(t, suffix)
		s.names[namedStruct{t, request}], s.components[name] = name, object{}
		schema := s.fields(t, request)
		if text := s.comments.ofType(t); text != "" {
			schema["description"] = text
		}
		s.components[name] = schema
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// name returns the name of a type's component: Volume, or VolumeList for a page of them, with a suffix.
func (s *schemer) name(t reflect.Type, suffix string) string {
	name := t.Name()
	if base, of, generic := strings.Cut(name, "["); generic {
		name = strings.TrimSuffix(of[strings.LastIndexAny(of, "./")+1:], "]")
		name += map[string]string{"Listing": "List"}[base]
	}
	name = strings.ToUpper(name[:1]) + name[1:] + suffix
	for s.taken[name] || s.components[name] != nil {
		name = "Berth" + name
	}
	return name
}

// fields returns the schema of a struct's fields.
func (s *schemer) fields(t reflect.Type, request bool) object {
	properties, required := object{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag == "-" || f.Anonymous && tag == "" || len(f.Index) > 1 && !promoted(t, f) {
			continue
		}
		if tag == "" {
			tag = strings.ToLower(f.Name)
		}
		optional := slices.Contains(strings.Split(options, ","), "omitempty")
		schema := s.schema(f.Type, request)
		if f.Type.Kind() == reflect.Pointer && !optional || request && f.Type.Kind() == reflect.Pointer {
			schema = nullable(schema)
		}
		if text := s.comments.ofField(owner(t, f), f.Name); text != "" {
			schema = described(schema, text)
		}
		properties[tag] = schema
		if !optional && !request {
			required = append(required, tag)
		}
	}
	out := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		slices.Sort(required)
		out["required"] = required
	}
	return out
}

// promoted reports whether a field of a field is one of t's JSON: that of an embedded struct.
func promoted(t reflect.Type, f reflect.StructField) bool {
	for i := 1; i < len(f.Index); i++ {
		if tag, _, _ := strings.Cut(t.FieldByIndex(f.Index[:i]).Tag.Get("json"), ","); tag != "" {
			return false
		}
	}
	return true
}

// owner returns the struct that declares a field.
func owner(t reflect.Type, f reflect.StructField) reflect.Type {
	if len(f.Index) > 1 {
		t = t.FieldByIndex(f.Index[:len(f.Index)-1]).Type
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return t
}

func nullable(schema object) object {
	if kind, ok := schema["type"].(string); ok && len(schema) == 1 {
		return object{"type": []string{kind, "null"}}
	}
	if len(schema) == 0 {
		return schema
	}
	return object{"anyOf": []any{schema, object{"type": "null"}}}
}

// described returns a copy of a schema with a description.
func described(schema object, text string) object {
	out := object{"description": text}
	for key, v := range schema {
		out[key] = v
	}
	return out
}
