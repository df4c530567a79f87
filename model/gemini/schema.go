package gemini

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Keywords of JSON Schema that generateContent supports, by the form of their value.
var (
	plainWords = []string{"$id", "$ref", "$anchor", "type", "format", "title", "description", "enum", "required",
		"propertyOrdering", "minItems", "maxItems", "minimum", "maximum", "nullable"}
	schemaWords = []string{"items", "additionalProperties"}   // a schema, or true or false
	listWords   = []string{"anyOf", "oneOf", "prefixItems"}   // a list of schemas
	mapWords    = []string{"properties", "$defs"}             // schemas by name
	silentWords = []string{"$schema", "$comment", "examples"} // dropped without loss
	maxDepth    = 64                                          // of nested schemas
	oldRef      = []byte(`"#/definitions/`)                   // in drafts before 2019
	newRef      = []byte(`"#/$defs/`)
)

// subset returns a schema with the keywords that generateContent supports. It retains
// the order, which is the order of the model's output. Unsupported keywords move into
// the description.
func subset(raw json.RawMessage) json.RawMessage {
	out, ok := lower(raw, maxDepth)
	if !ok {
		return raw // the vendor's error explains it
	}
	return out
}

// A field is a name and its value, as JSON.
type field struct {
	name  string
	value json.RawMessage
}

// fields decodes an object in order.
func fields(raw json.RawMessage) ([]field, bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var out []field
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		f := field{name: name}
		if err != nil || !ok || d.Decode(&f.value) != nil {
			return nil, false
		}
		out = append(out, f)
	}
	return out, true
}

func object(all []field) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		name, _ := json.Marshal(f.name) // a string always marshals
		b.Write(name)
		b.WriteByte(':')
		b.Write(f.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func lower(raw json.RawMessage, depth int) (json.RawMessage, bool) {
	all, ok := fields(raw)
	if !ok || depth == 0 {
		return nil, false
	}
	var out []field
	var lost []string
	for _, f := range all {
		switch {
		case f.name == "$ref":
			f.value = bytes.Replace(f.value, oldRef, newRef, 1)
			out = append(out, f)
		case slices.Contains(plainWords, f.name):
			out = append(out, f)
		case f.name == "const":
			out = append(out, field{"enum", slices.Concat(json.RawMessage("["), f.value, json.RawMessage("]"))})
		case slices.Contains(schemaWords, f.name):
			out = append(out, field{f.name, inner(f.value, depth)})
		case slices.Contains(listWords, f.name):
			out = append(out, field{f.name, each(f.value, depth)})
		case slices.Contains(mapWords, f.name) || f.name == "definitions":
			if f.name == "definitions" {
				f.name = "$defs"
			}
			out = append(out, field{f.name, values(f.value, depth)})
		case !slices.Contains(silentWords, f.name):
			lost = append(lost, fmt.Sprintf("%s: %s", f.name, f.value))
		}
	}
	if len(lost) > 0 {
		out = describe(out, "{"+strings.Join(lost, ", ")+"}")
	}
	return object(out), true
}

// inner lowers a schema; true and false stay unchanged.
func inner(raw json.RawMessage, depth int) json.RawMessage {
	if out, ok := lower(raw, depth-1); ok {
		return out
	}
	return raw
}

func each(raw json.RawMessage, depth int) json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return raw
	}
	for i := range list {
		list[i] = inner(list[i], depth)
	}
	out, _ := json.Marshal(list) // valid JSON always marshals
	return out
}

func values(raw json.RawMessage, depth int) json.RawMessage {
	all, ok := fields(raw)
	if !ok {
		return raw
	}
	for i := range all {
		all[i].value = inner(all[i].value, depth)
	}
	return object(all)
}

// describe appends text to the description.
func describe(all []field, words string) []field {
	for i, f := range all {
		var text string
		if f.name == "description" && json.Unmarshal(f.value, &text) == nil {
			all[i].value, _ = json.Marshal(text + "\n\n" + words) // a string always marshals
			return all
		}
	}
	value, _ := json.Marshal(words)
	return append(all, field{"description", value})
}
