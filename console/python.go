package console

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// python returns a value of JSON as an expression of Python.
func python(value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return "None"
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return "None"
	}
	var b strings.Builder
	writePython(&b, tree)
	return b.String()
}

func writePython(b *strings.Builder, value any) {
	switch v := value.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case []any:
		b.WriteString("[")
		for i, e := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			writePython(b, e)
		}
		b.WriteString("]")
	case map[string]any:
		b.WriteString("{")
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteString(", ")
			}
			writePython(b, name)
			b.WriteString(": ")
			writePython(b, v[name])
		}
		b.WriteString("}")
	default: // a string or a number of JSON is one of Python
		var raw strings.Builder
		out := json.NewEncoder(&raw)
		out.SetEscapeHTML(false) // the page escapes it
		_ = out.Encode(v)        // it was decoded from JSON
		b.WriteString(strings.TrimSuffix(raw.String(), "\n"))
	}
}
