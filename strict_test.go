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
		{`{"type":"object","properties":{"a":{"type":"string"},"b":{}},"required":["a","a"],"additionalProperties":false}`, false},
		{`{"type":"object","properties":{"a":{"type":"string","format":"email"}},"required":["a"],"additionalProperties":false}`, false},
		{`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object"}}},"required":["a"],"additionalProperties":false}`, false},
		{`{"type":"object","properties":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]}},"required":["a"],"additionalProperties":false,"$defs":{"b":{"type":"object"}}}`, false},
		{`{"type":"object","properties":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/b"}]}},"required":["a"],"additionalProperties":false,"$defs":{"b":{"type":"string"}}}`, true},
	} {
		if got := isStrict(json.RawMessage(tc.schema)); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.schema, got, tc.want)
		}
	}
}

// What a client left out of a tool is shown; what it said stays as it is.
func TestCompletedTool(t *testing.T) {
	for _, tc := range []struct{ tool, want string }{
		{`{"type":"function","name":"f"}`, `{"description":null,"name":"f","parameters":null,"strict":false,"type":"function"}`},
		{`{"type":"function","name":"f","parameters":null,"strict":null,"description":"d"}`, `{"description":"d","name":"f","parameters":null,"strict":false,"type":"function"}`},
		{`{"type":"function","name":"f","description":"d","parameters":{"b":1,"a":2},"strict":true}`, `{"type":"function","name":"f","description":"d","parameters":{"b":1,"a":2},"strict":true}`},
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
