package anthropic

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Keywords and string formats that Anthropic's structured outputs support. Their SDKs move
// the others into descriptions, where the model can still read them.
var (
	schemaKeywords = []string{"$ref", "$defs", "type", "anyOf", "oneOf", "allOf", "description", "title", "enum",
		"const",
		"properties", "additionalProperties", "required", "items", "minItems", "format", "pattern"}
	stringFormats = []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6",
		"uuid"}
)

// simplify returns a JSON schema with supported keywords only, or nil if the schema says
// nothing about the form of a value. Its argument stays as it is. Values of wrong types stay
// too: the upstream refuses them and names the place.
func simplify(schema any) any {
	s, ok := schema.(map[string]any)
	if !ok {
		return schema // true or false
	}
	if ref, ok := s["$ref"].(string); ok && ref != "" {
		return map[string]any{"$ref": ref} // no keyword may stand beside it
	}
	out, moved := map[string]any{}, map[string]any{}
	for key, value := range s {
		if slices.Contains(schemaKeywords, key) {
			out[key] = value
		} else {
			moved[key] = value
		}
	}
	each(out, "$defs")
	if _, ok := out["anyOf"]; !ok && out["oneOf"] != nil {
		out["anyOf"] = out["oneOf"]
	}
	delete(out, "oneOf")
	if variants, ok := out["anyOf"].([]any); ok {
		out["anyOf"] = slices.DeleteFunc(simplifyAll(variants), func(v any) bool { return v == nil })
	}
	if variants, ok := out["allOf"].([]any); ok {
		out["allOf"] = slices.DeleteFunc(simplifyAll(variants), func(v any) bool { return v == nil })
	}
	if !slices.ContainsFunc([]string{"type", "anyOf", "allOf", "enum", "const"}, func(key string) bool {
		return out[key] != nil
	}) {
		return nil
	}
	switch out["type"] {
	case "object":
		simplifyObject(out)
	case "array":
		if items, ok := out["items"]; ok {
			out["items"] = orAny(simplify(items))
		}
		if n, ok := out["minItems"].(float64); ok && n != 0 && n != 1 {
			moved["minItems"] = n
			delete(out, "minItems")
		}
	case "string":
		if format, ok := out["format"].(string); ok && !slices.Contains(stringFormats, format) {
			moved["format"] = format
			delete(out, "format")
		}
	}
	describe(out, moved)
	return out
}

// simplifyObject closes an object with properties to others. An object without is a
// dictionary if it has a schema for its values.
func simplifyObject(s map[string]any) {
	_, dictionary := s["additionalProperties"]
	switch {
	case s["properties"] != nil:
		each(s, "properties")
		s["additionalProperties"] = false
	case dictionary:
		s["additionalProperties"] = orAny(simplify(s["additionalProperties"]))
	default:
		s["properties"], s["additionalProperties"] = map[string]any{}, false
	}
}

// each simplifies the schemas in the object s[key].
func each(s map[string]any, key string) {
	schemas, ok := s[key].(map[string]any)
	if !ok {
		return
	}
	simple := make(map[string]any, len(schemas))
	for name, schema := range schemas {
		simple[name] = orAny(simplify(schema))
	}
	s[key] = simple
}

// orAny returns the schema of any value in place of nil.
func orAny(schema any) any {
	if schema == nil {
		return true
	}
	return schema
}

func simplifyAll(schemas []any) []any {
	out := make([]any, len(schemas))
	for i, schema := range schemas {
		out[i] = simplify(schema)
	}
	return out
}

// describe adds keywords to a schema's description: {maxLength: 5, minLength: 1}.
func describe(s, keywords map[string]any) {
	if len(keywords) == 0 {
		return
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(keywords)) {
		value, ok := keywords[key].(string)
		if !ok {
			raw, _ := json.Marshal(keywords[key]) // it was decoded from JSON
			value = string(raw)
		}
		parts = append(parts, fmt.Sprintf("%s: %s", key, value))
	}
	text := "{" + strings.Join(parts, ", ") + "}"
	if before, ok := s["description"].(string); ok && before != "" {
		text = before + "\n\n" + text
	}
	s["description"] = text
}
