package api_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/model"
)

// Code execution has a text editor, whose results have the vendor's forms. A later message gives them to the model again.
func TestMessagesTextEditor(t *testing.T) {
	t.Parallel()
	made := 0
	edit := func(arguments string) []any {
		made++
		return turn(model.Call{ID: "call_" + strconv.Itoa(made), Name: "text_editor_code_execution",
			Arguments: arguments}, stopped)
	}
	says := turn(model.Text{Text: "Done."}, stopped)
	calls := []struct{ arguments, result string }{
		{`{"command":"create","path":"/mnt/data/sub/a.txt","file_text":"one\ntwo\n"}`,
			`{"type":"text_editor_code_execution_create_result","is_file_update":false}`},
		{`{"command":"create","path":"sub/a.txt","file_text":"one\ntwo\nthree\n"}`,
			`{"type":"text_editor_code_execution_create_result","is_file_update":true}`},
		{`{"command":"view","path":"/mnt/data/sub/a.txt","view_range":[2,-1]}`,
			`{"type":"text_editor_code_execution_view_result","file_type":"text","content":"two\nthree\n","start_line":2,"num_lines":2,"total_lines":3}`},
		{`{"command":"str_replace","path":"/mnt/data/sub/a.txt","old_str":"two","new_str":"2\n2b"}`,
			`{"type":"text_editor_code_execution_str_replace_result","old_start":2,"old_lines":1,"new_start":2,"new_lines":2,"lines":["-two","+2","+2b"]}`},
		{`{"command":"view","path":"/mnt/data/sub"}`,
			`{"type":"text_editor_code_execution_view_result","file_type":"text","content":"a.txt\n","start_line":null,"num_lines":null,"total_lines":null}`},
		{`{"command":"view","path":"/mnt/data/none"}`, `file_not_found`},
		{`{"command":"str_replace","path":"/mnt/data/none","old_str":"a"}`, `file_not_found`},
		{`{"command":"str_replace","path":"/mnt/data/sub/a.txt","old_str":"absent"}`, `invalid_tool_input`},
		{`{"command":"str_replace","path":"/mnt/data/sub/a.txt","old_str":"e"}`, `invalid_tool_input`},
		{`{"command":"insert","path":"/mnt/data/sub/a.txt"}`, `invalid_tool_input`},
		{`{"command":"create","path":""}`, `invalid_tool_input`},
		{`{"command":"view","path":"/mnt/data/sub/a.txt","view_range":[9,-1]}`, `invalid_tool_input`},
	}
	var turns [][]any
	for _, c := range calls {
		turns = append(turns, edit(c.arguments))
	}
	turns = append(turns, says, edit(`{"command":"view","path":"/mnt/data/sub/a.txt"}`), says)
	h, m := playing(t, turns...)
	const fields = `"tools":[{"type":"code_execution_20250825","name":"code_execution"}],"messages":[{"role":"user","content":"hi"}`
	o := h.message(fields + `]`)
	for i, c := range calls {
		use, result := o.at("content", 2*i).(map[string]any), o.at("content", 2*i+1).(map[string]any)
		input, err := json.Marshal(use["input"])
		check(t, err)
		if use["name"] != "text_editor_code_execution" || result["tool_use_id"] != use["id"] ||
			result["type"] != "text_editor_code_execution_tool_result" || !sameJSON(t, string(input), c.arguments) {
			t.Errorf("%s: got %v and %v", c.arguments, use, result)
		}
		got, err := json.Marshal(result["content"])
		check(t, err)
		if !strings.HasPrefix(c.result, "{") {
			if o.at("content", 2*i+1, "content", "error_code") != c.result {
				t.Errorf("%s: got %s, want the error %s", c.arguments, got, c.result)
			}
		} else if !sameJSON(t, string(got), c.result) {
			t.Errorf("%s:\ngot  %s\nwant %s", c.arguments, got, c.result)
		}
	}
	content, err := json.Marshal(o["content"])
	check(t, err)
	answer, _ := h.streamed(`"container":"` + o.at("container", "id").(string) + `",` + fields +
		`,{"role":"assistant","content":` + string(content) + `},{"role":"user","content":"again"}]`)
	if len(answer.Content) != 3 ||
		!strings.Contains(answer.Content[1].RawJSON(), `"one\n2\n2b\nthree\n"`) {
		t.Errorf("streamed %s", answer.RawJSON())
	}
	asked := m.asked[len(calls)+1].Items
	var shown strings.Builder
	for _, it := range asked {
		shown.Write(it.Raw())
	}
	for _, text := range []string{"     2\\ttwo", "The file was created.", "The file was replaced.",
		"The file was changed from line 2", "There is no such file."} {
		if !strings.Contains(shown.String(), text) {
			t.Errorf("the model does not see %q again: %s", text, shown.String())
		}
	}
}

// sameJSON reports whether two texts have the same value.
func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	check(t, json.Unmarshal([]byte(a), &x))
	check(t, json.Unmarshal([]byte(b), &y))
	return cmp.Equal(x, y)
}
