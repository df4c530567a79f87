package messages

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Edits clear old results and thoughts, and say how much.
func TestEdits(t *testing.T) {
	long := strings.Repeat("x", 400)
	var turns []string
	for _, id := range []string{"a", "b", "c"} {
		turns = append(turns, `{"role":"assistant","content":[{"type":"thinking","thinking":"`+long+`","signature":"s"},{"type":"tool_use","id":"`+id+
			`","name":"f`+id+`","input":{"q":"`+long+`"}}]}`, `{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+id+`","content":"`+long+`"}]}`)
	}
	messages := `"messages":[{"role":"user","content":"hi"},` + strings.Join(turns, ",") + `]`
	for _, tc := range []struct {
		edit    string
		applied string
		left    int // results and inputs that are long, and thoughts
	}{
		{`{"type":"clear_tool_uses_20250919"}`, `null`, 9},
		{`{"type":"clear_tool_uses_20250919","trigger":{"type":"tool_uses","value":3},"keep":{"type":"tool_uses","value":1}}`, `null`, 9},
		{`{"type":"clear_tool_uses_20250919","trigger":{"type":"tool_uses","value":2},"keep":{"type":"tool_uses","value":1}}`,
			`[{"type":"clear_tool_uses_20250919","cleared_input_tokens":173,"cleared_tool_uses":2}]`, 7},
		{`{"type":"clear_tool_uses_20250919","trigger":{"type":"input_tokens","value":100},"keep":{"type":"tool_uses","value":0},"exclude_tools":["fb"],"clear_tool_inputs":["fa"]}`,
			`[{"type":"clear_tool_uses_20250919","cleared_input_tokens":274,"cleared_tool_uses":2}]`, 6},
		{`{"type":"clear_tool_uses_20250919","trigger":{"type":"input_tokens","value":100},"clear_at_least":{"type":"input_tokens","value":1000}}`,
			`null`, 9},
		{`{"type":"clear_thinking_20251015"}`,
			`[{"type":"clear_thinking_20251015","cleared_input_tokens":200,"cleared_thinking_turns":2}]`, 7},
		{`{"type":"clear_thinking_20251015","keep":"all"}`, `null`, 9},
		{`{"type":"clear_thinking_20251015","keep":{"type":"all"}}`, `null`, 9},
		{`{"type":"clear_thinking_20251015","keep":{"type":"thinking_turns","value":2}}`,
			`[{"type":"clear_thinking_20251015","cleared_input_tokens":100,"cleared_thinking_turns":1}]`, 8},
		{`{"type":"compact_20260112"}`, `null`, 9},
	} {
		body := `{"model":"m","max_tokens":1,` + messages + `,"context_management":{"edits":[` + tc.edit + `]}}`
		if _, err := read(body); err != nil {
			t.Errorf("%s: %v", tc.edit, err)
			continue
		}
		var m messageRequest
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			t.Fatal(err)
		}
		translated, err := m.translate(items)
		if err != nil {
			t.Fatal(err)
		}
		applied, err := json.Marshal(m.applied)
		if err != nil {
			t.Fatal(err)
		}
		input, err := json.Marshal(translated.request.Input)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.applied, string(applied)); diff != "" || strings.Count(string(input), long) != tc.left {
			t.Errorf("%s: %d are left, want %d (-want +got):\n%s", tc.edit, strings.Count(string(input), long), tc.left, diff)
		}
	}
	for _, wrong := range []string{`{"type":"clear_thinking_20251015","keep":3}`, `{"type":5}`,
		`{"type":"clear_tool_uses_20250919","trigger":{"type":"tool_uses"}}`} {
		if _, err := read(`{"model":"m","max_tokens":1,` + messages + `,"context_management":{"edits":[` + wrong + `]}}`); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}
