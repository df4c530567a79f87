package berth

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// completed returns the tool as a response shows it: with defaults for the fields that
// the request omits.
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

// isStrict reports whether a function without "strict" is strict by default: whether
// its schema obeys the rules of strict schemas and uses common keywords only.
func isStrict(parameters json.RawMessage) bool {
	var schema map[string]any
	if json.Unmarshal(parameters, &schema) != nil || schema == nil {
		return false
	}
	return visitSchema(schema, nil, func(_ []string, schema any) string {
		s, _ := schema.(map[string]any)
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

// refusedKeywords are the keywords that OpenAI refuses in strict schemas.
var refusedKeywords = []string{"allOf", "dependentRequired", "dependentSchemas", "else", "if", "not", "oneOf",
	"patternProperties", "then"}

// StrictProblem checks a JSON schema for strict mode. It returns the first problem in
// OpenAI's words with its place, or "". In a strict schema, every object excludes
// additional properties and requires all of its own.
func StrictProblem(schema map[string]any) string {
	if !hasType(schema, "object") {
		return fmt.Sprintf("schema must be a JSON Schema of 'type: \"object\"', got 'type: \"%s\"'.",
			typeName(schema["type"]))
	}
	if problem := SchemaProblem(schema); problem != "" {
		return problem
	}
	return visitSchema(schema, nil, func(at []string, inner any) string {
		s, ok := inner.(map[string]any)
		if !ok {
			return fmt.Sprintf("In context=%s, a schema must be an object.", tuple(at))
		}
		for _, name := range refusedKeywords {
			if _, ok := s[name]; ok {
				return fmt.Sprintf("In context=%s, '%s' is not permitted.", tuple(at), name)
			}
		}
		if problem := strictValue(schema, s); problem != "" {
			return fmt.Sprintf("In context=%s, %s", tuple(at), problem)
		}
		return strictObject(at, s)
	})
}

// strictValue checks one schema within a strict root for rules that hold for all types.
func strictValue(root, s map[string]any) string {
	described := slices.ContainsFunc([]string{"type", "$ref", "anyOf", "enum", "const"}, func(name string) bool {
		_, ok := s[name]
		return ok
	})
	if !described {
		return "schema must have a 'type' key."
	}
	if _, ok := s["items"]; !ok && hasType(s, "array") {
		return "array schema missing items."
	}
	if enum, ok := s["enum"].([]any); ok && len(enum) == 0 {
		return "enum: [] should be non-empty."
	}
	if ref, ok := s["$ref"]; ok && !refers(root, ref) {
		return fmt.Sprintf("reference to component %s which was not found in the schema.", quoted(ref))
	}
	return ""
}

// refers reports whether a $ref points to a schema within root.
func refers(root map[string]any, ref any) bool {
	text, _ := ref.(string)
	path, ok := strings.CutPrefix(text, "#")
	if !ok {
		return false
	}
	var at any = root
	for i, name := range strings.Split(path, "/") {
		if i == 0 {
			if name != "" {
				return false
			}
			continue
		}
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch inner := at.(type) {
		case map[string]any:
			if at, ok = inner[name]; !ok {
				return false
			}
		case []any:
			n, err := strconv.Atoi(name)
			if err != nil || n < 0 || n >= len(inner) {
				return false
			}
			at = inner[n]
		default:
			return false
		}
	}
	_, ok = at.(map[string]any)
	return ok
}

// schemaTypes are the values of a schema's type.
var schemaTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// SchemaProblem checks a JSON schema in any mode. It returns the first problem in
// OpenAI's words with its place, or "".
func SchemaProblem(schema map[string]any) string {
	return visitSchema(schema, nil, func(at []string, inner any) string {
		problem := malformed(inner)
		if problem != "" {
			problem = fmt.Sprintf("In context=%s, %s", tuple(at), problem)
		}
		return problem
	})
}

// malformed checks the form of one schema. It returns the problem, or "".
func malformed(schema any) string {
	s, ok := schema.(map[string]any)
	if !ok {
		switch schema.(type) {
		case bool, []any: // true, or items of older drafts
			return ""
		}
		return fmt.Sprintf("%s is not of type 'object', 'boolean'.", quoted(schema))
	}
	if kind, ok := s["type"]; ok {
		kinds, several := kind.([]any)
		if !several {
			kinds = []any{kind}
		}
		unknown := func(k any) bool { name, ok := k.(string); return !ok || !slices.Contains(schemaTypes, name) }
		if len(kinds) == 0 || slices.ContainsFunc(kinds, unknown) {
			return fmt.Sprintf("%s is not valid under any of the given schemas.", quoted(kind))
		}
	}
	for _, name := range []string{"properties", "$defs", "definitions"} {
		if v, ok := s[name]; ok {
			if _, ok := v.(map[string]any); !ok {
				return fmt.Sprintf("%s is not of type 'object'.", quoted(v))
			}
		}
	}
	for _, name := range []string{"required", "enum", "anyOf"} {
		v, ok := s[name]
		if !ok {
			continue
		}
		list, ok := v.([]any)
		if !ok {
			return fmt.Sprintf("%s is not of type 'array'.", quoted(v))
		}
		for _, each := range list {
			if _, ok := each.(string); !ok && name == "required" {
				return fmt.Sprintf("%s is not of type 'string'.", quoted(each))
			}
		}
	}
	return ""
}

// quoted writes a value as OpenAI's errors do.
func quoted(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case string:
		return "'" + clipped(v) + "'"
	}
	raw, _ := json.Marshal(v) // v was decoded from JSON
	return clipped(string(raw))
}

// clipped shortens a text to 100 bytes.
func clipped(s string) string {
	const most = 100
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// strictObject checks one schema that describes an object. It returns "" for others.
func strictObject(at []string, s map[string]any) string {
	properties, _ := s["properties"].(map[string]any)
	if !hasType(s, "object") && properties == nil {
		return ""
	}
	if s["additionalProperties"] != false {
		return fmt.Sprintf("In context=%s, 'additionalProperties' is required to be supplied and to be false.",
			tuple(at))
	}
	required, _ := s["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !slices.Contains(required, any(name)) {
			return fmt.Sprintf(
				"In context=%s, 'required' is required to be supplied and to be an array including every key in properties. Missing '%s'.",
				tuple(at), name)
		}
	}
	return ""
}

// visitSchema calls visit for a schema and those within it, each with its place. It
// stops at the first problem that visit returns, and returns it.
func visitSchema(schema any, at []string, visit func(at []string, schema any) string) string {
	if problem := visit(at, schema); problem != "" {
		return problem
	}
	s, _ := schema.(map[string]any)
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

// hasType reports whether the schema's type is, or includes, the given one.
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
