package berth

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// completed returns a tool of a request as its response shows it: with the fields
// that the client left out.
func (t Tool) completed() Tool {
	fields := map[string]json.RawMessage{}
	if t.Decode(&fields) != nil {
		return t
	}
	missing := map[string]any{}
	switch t.Type() {
	case ToolFunction:
		missing = map[string]any{"description": nil, "parameters": nil, "strict": isStrict(fields["parameters"])}
	case ToolCustom:
		missing = map[string]any{"format": CustomFormat{Type: "text"}}
	case ToolNamespace:
		var n NamespaceTool
		if t.Decode(&n) != nil {
			return t
		}
		delete(fields, "tools")
		missing = map[string]any{"tools": completedTools(n.Tools)}
	}
	changed := false
	for name, value := range missing {
		if raw, ok := fields[name]; ok && (string(raw) != "null" || value == nil) {
			continue
		}
		fields[name], _ = json.Marshal(value) // values of this function's own always marshal
		changed = true
	}
	if !changed {
		return t
	}
	return NewTool(fields)
}

func completedTools(tools []Tool) []Tool {
	out := make([]Tool, len(tools))
	for i, t := range tools {
		out[i] = t.completed()
	}
	return out
}

// isStrict reports whether a function whose request does not say so is strict: whether
// its schema keeps the rules of strict schemas and uses common keywords only.
func isStrict(parameters json.RawMessage) bool {
	var schema map[string]any
	if json.Unmarshal(parameters, &schema) != nil || schema == nil {
		return false
	}
	return visitSchema(schema, nil, func(_ []string, s map[string]any) string {
		for name := range s {
			if !slices.Contains(commonKeywords, name) {
				return name
			}
		}
		return ""
	}) == "" && StrictProblem(schema) == ""
}

var commonKeywords = []string{"$defs", "$ref", "additionalProperties", "anyOf", "const", "definitions", "description",
	"enum", "items", "properties", "required", "title", "type"}

// refusedKeywords are those that OpenAI refuses in strict schemas.
var refusedKeywords = []string{"allOf", "dependentRequired", "dependentSchemas", "else", "if", "not", "oneOf", "patternProperties", "then"}

// StrictProblem returns what is wrong with a JSON schema for strict mode, in OpenAI's
// words and with the place, or "". In a strict schema every object has no other than its
// own properties, and all of them are required.
func StrictProblem(schema map[string]any) string {
	if !hasType(schema, "object") {
		return fmt.Sprintf("schema must be a JSON Schema of 'type: \"object\"', got 'type: \"%s\"'.", typeName(schema["type"]))
	}
	return visitSchema(schema, nil, func(at []string, s map[string]any) string {
		for _, name := range refusedKeywords {
			if _, ok := s[name]; ok {
				return fmt.Sprintf("In context=%s, '%s' is not permitted.", tuple(at), name)
			}
		}
		return strictObject(at, s)
	})
}

// strictObject returns what is wrong with one schema that describes an object.
func strictObject(at []string, s map[string]any) string {
	properties, _ := s["properties"].(map[string]any)
	if !hasType(s, "object") && properties == nil {
		return ""
	}
	if s["additionalProperties"] != false {
		return fmt.Sprintf("In context=%s, 'additionalProperties' is required to be supplied and to be false.", tuple(at))
	}
	required, _ := s["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !slices.Contains(required, any(name)) {
			return fmt.Sprintf("In context=%s, 'required' is required to be supplied and to be an array including every key in properties. Missing '%s'.", tuple(at), name)
		}
	}
	return ""
}

// visitSchema calls visit for a schema and those in it, with their places, until it
// returns something, which visitSchema returns.
func visitSchema(schema any, at []string, visit func(at []string, s map[string]any) string) string {
	s, ok := schema.(map[string]any)
	if !ok {
		return fmt.Sprintf("In context=%s, a schema must be an object.", tuple(at))
	}
	if problem := visit(at, s); problem != "" {
		return problem
	}
	in := func(more ...string) []string { return append(slices.Clone(at), more...) }
	if items, ok := s["items"]; ok {
		if problem := visitSchema(items, in("items"), visit); problem != "" {
			return problem
		}
	}
	for _, keyword := range []string{"properties", "$defs", "definitions"} {
		inner, _ := s[keyword].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(inner)) {
			if problem := visitSchema(inner[name], in(keyword, name), visit); problem != "" {
				return problem
			}
		}
	}
	anyOf, _ := s["anyOf"].([]any)
	for i, each := range anyOf {
		if problem := visitSchema(each, in("anyOf", strconv.Itoa(i)), visit); problem != "" {
			return problem
		}
	}
	return ""
}

// hasType reports whether a schema's type is, or may be, the given one.
func hasType(schema map[string]any, name string) bool {
	if types, ok := schema["type"].([]any); ok {
		return slices.Contains(types, any(name))
	}
	return schema["type"] == name
}

func typeName(v any) string {
	if v == nil {
		return "None"
	}
	return fmt.Sprint(v)
}

// tuple writes a place in a schema as OpenAI's errors do: ('properties', 'a').
func tuple(at []string) string {
	quoted := make([]string, len(at))
	for i, s := range at {
		quoted[i] = "'" + s + "'"
	}
	if len(at) == 1 {
		return "(" + quoted[0] + ",)"
	}
	return "(" + strings.Join(quoted, ", ") + ")"
}
