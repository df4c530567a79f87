package berth

import (
	"encoding/json"
	"slices"
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

// isStrict reports whether a function whose request does not say so is strict: if
// its schema holds to the rules for that, which are that objects have all their
// properties and no others, and that only some keywords are used.
func isStrict(parameters json.RawMessage) bool {
	var schema any
	if json.Unmarshal(parameters, &schema) != nil {
		return false
	}
	root, ok := schema.(map[string]any)
	return ok && root["type"] == "object" && strictSchema(root)
}

var strictKeywords = []string{"$defs", "$ref", "additionalProperties", "anyOf", "const", "definitions", "description",
	"enum", "items", "properties", "required", "title", "type"}

func strictSchema(schema any) bool {
	s, ok := schema.(map[string]any)
	if !ok {
		return false
	}
	for name := range s {
		if !slices.Contains(strictKeywords, name) {
			return false
		}
	}
	properties, _ := s["properties"].(map[string]any)
	if s["type"] == "object" || properties != nil {
		required, _ := s["required"].([]any)
		if s["additionalProperties"] != false {
			return false
		}
		for name := range properties {
			if !slices.Contains(required, any(name)) {
				return false
			}
		}
	}
	if items, ok := s["items"]; ok && !strictSchema(items) {
		return false
	}
	for _, name := range []string{"properties", "$defs", "definitions"} {
		inner, _ := s[name].(map[string]any)
		for _, each := range inner {
			if !strictSchema(each) {
				return false
			}
		}
	}
	anyOf, _ := s["anyOf"].([]any)
	return !slices.ContainsFunc(anyOf, func(each any) bool { return !strictSchema(each) })
}
