package berth

import (
	"encoding/json"
	"testing"
)

func TestIsStrict(t *testing.T) {
	for _, tc := range []struct {
		schema string
		want   bool
	}{
		{`null`, false},
		{``, false},
		{`{}`, false},
		{`{"type":"object","properties":{},"additionalProperties":false}`, true},
		{`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`, true},
		{`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, false},
		{`{"type":"object","properties":{"a":{"type":"string"}},"required":[],"additionalProperties":false}`, false},
		{`{"type":"object","properties":{"a":{"type":"string"},"b":{}},"required":["a","a"],"additionalProperties":false}`,
			false},
		{`{"type":"object","properties":{"a":{"type":"string","format":"email"}},"required":["a"],"additionalProperties":false}`,
			false},
		{`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}},"required":["a"],"additionalProperties":false}`,
			false},
		{`{"type":"object","properties":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]}},"required":["a"],"additionalProperties":false,"$defs":{"b":{"type":"object"}}}`,
			false},
		{`{"type":"object","properties":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]}},"required":["a"],"additionalProperties":false,"$defs":{"b":{"type":"string"}}}`,
			true},
	} {
		if got := isStrict(json.RawMessage(tc.schema)); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.schema, got, tc.want)
		}
	}
}

// A completed tool has defaults for omitted fields and the client's values for others.
func TestCompletedTool(t *testing.T) {
	for _, tc := range []struct{ tool, want string }{
		{`{"type":"function","name":"f"}`,
			`{"description":null,"name":"f","parameters":null,"strict":false,"type":"function"}`},
		{`{"type":"function","name":"f","parameters":null,"strict":null,"description":"d"}`,
			`{"description":"d","name":"f","parameters":null,"strict":false,"type":"function"}`},
		{`{"type":"function","name":"f","description":"d","parameters":{"b":1,"a":2},"strict":true}`,
			`{"type":"function","name":"f","description":"d","parameters":{"b":1,"a":2},"strict":true}`},
		{`{"type":"custom","name":"c"}`, `{"format":{"type":"text"},"name":"c","type":"custom"}`},
		{`{"type":"namespace","name":"n","description":"d","tools":[{"type":"custom","name":"c"}]}`,
			`{"description":"d","name":"n","tools":[{"format":{"type":"text"},"name":"c","type":"custom"}],"type":"namespace"}`},
		{`{"type":"shell"}`, `{"type":"shell"}`},
	} {
		var tool Tool
		if err := json.Unmarshal([]byte(tc.tool), &tool); err != nil {
			t.Fatal(err)
		}
		if got := string(tool.completed().Raw()); got != tc.want {
			t.Errorf("got %s, want %s", got, tc.want)
		}
	}
}

// Schema problems are reported with their place.
func TestSchemaProblems(t *testing.T) {
	const at = "In context=('properties', 'city'), "
	for _, tc := range []struct{ city, loose, strict string }{
		{`{"type":"string"}`, "", ""},
		{`{"$ref":"#/$defs/d"}`, "", ""},
		{`{"$ref":"#"}`, "", ""},
		{`{"type":["string","null"],"enum":["a",null]}`, "", ""},
		{`{"type":"array"}`, "", at + "array schema missing items."},
		{`{"type":"array","items":{"type":"strin"}}`,
			"In context=('properties', 'city', 'items'), 'strin' is not valid under any of the given schemas.", "same"},
		{`{"type":"strin"}`, at + "'strin' is not valid under any of the given schemas.", "same"},
		{`{"type":[]}`, at + "[] is not valid under any of the given schemas.", "same"},
		{`{"type":["string",7]}`, at + `["string",7] is not valid under any of the given schemas.`, "same"},
		{`{"$ref":"#/$defs/none"}`, "",
			at + "reference to component '#/$defs/none' which was not found in the schema."},
		{`{"$ref":"#/$defs/d/title"}`, "",
			at + "reference to component '#/$defs/d/title' which was not found in the schema."},
		{`{"description":"d"}`, "", at + "schema must have a 'type' key."},
		{`{"type":"string","enum":[]}`, "", at + "enum: [] should be non-empty."},
		{`true`, "", at + "a schema must be an object."},
		{`"string"`, at + "'string' is not of type 'object', 'boolean'.", "same"},
		{`{"type":"object","properties":[]}`, at + "[] is not of type 'object'.", "same"},
		{`{"type":"object","properties":{},"required":"a"}`, at + "'a' is not of type 'array'.", "same"},
		{`{"type":"object","properties":{},"required":null}`, at + "None is not of type 'array'.", "same"},
		{`{"type":"object","properties":{},"required":[1]}`, at + "1 is not of type 'string'.", "same"},
	} {
		var schema map[string]any
		text := `{"type":"object","properties":{"city":` + tc.city +
			`},"required":["city"],"additionalProperties":false,"$defs":{"d":{"type":"string","title":"t"}}}`
		if err := json.Unmarshal([]byte(text), &schema); err != nil {
			t.Fatal(err)
		}
		if tc.strict == "same" {
			tc.strict = tc.loose
		}
		if got := SchemaProblem(schema); got != tc.loose {
			t.Errorf("%s, not strict: got %q, want %q", tc.city, got, tc.loose)
		}
		if got := StrictProblem(schema); got != tc.strict {
			t.Errorf("%s, strict: got %q, want %q", tc.city, got, tc.strict)
		}
	}
}
