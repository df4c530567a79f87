package anthropic_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/anthropic"
	"github.com/berth-run/berth/model/modeltest"
)

// hosted are functions of Berth as the engine passes them.
var hosted = []berth.FunctionTool{
	{Type: "function", Name: "shell", Description: "Runs commands.", Parameters: json.RawMessage(`{"type":"object"}`),
		Hosted: &berth.HostedFunction{Type: berth.ToolShell, About: func() string { return "The container has git." }}},
	{Type: "function", Name: "code_interpreter", Description: "Runs code.",
		Parameters: json.RawMessage(`{"type":"object"}`),
		Hosted:     &berth.HostedFunction{Type: berth.ToolCode}},
	{Type: "function", Name: "f"},
}

// offeredTools returns type and name of the tools that a model is offered.
func offeredTools(got *modeltest.Request) (all []string) {
	for _, t := range got.Tools {
		all = append(all, t.Type+" "+t.Name)
	}
	return all
}

func TestNativeTools(t *testing.T) {
	own := []string{"bash_20250124 bash", "text_editor_20250728 str_replace_based_edit_tool", "function code_execution",
		"function f"}
	plain := []string{"function shell", "function code_interpreter", "function f"}
	for _, tc := range []struct {
		model string
		tools []string // of the options
		add   string   // the name of another function
		want  []string
	}{
		{"claude-sonnet-4-5", nil, "", own},
		{"claude-opus-5-5", nil, "", own},
		{"claude-3-7-sonnet-20250219", nil, "", []string{own[0], own[2], own[3]}},
		{"claude-3-haiku-20240307", nil, "", plain},
		{"kimi-k2", nil, "", plain},
		{"kimi-k2", []string{"shell"}, "", []string{own[0], own[1], plain[1], plain[2]}},
		{"claude-sonnet-4-5", []string{}, "", plain},
		{"claude-sonnet-4-5", []string{"code_interpreter"}, "", []string{plain[0], own[2], own[3]}},
		{"claude-sonnet-4-5", nil, "bash", []string{plain[0], own[2], own[3], "function bash"}},
		{"claude-sonnet-4-5", nil, "str_replace_based_edit_tool",
			[]string{own[0], own[2], own[3], "function str_replace_based_edit_tool"}},
	} {
		req := &model.Request{Model: tc.model, Tools: hosted, Instructions: "Be brief.",
			ToolChoice: model.ToolChoice{Mode: "function", Name: "shell"}}
		if tc.add != "" {
			req.Tools = append(req.Tools[:3:3], berth.FunctionTool{Type: "function", Name: tc.add})
		}
		got, _ := received(t, req, func(o *anthropic.Options) { o.NativeTools = tc.tools })
		if diff := cmp.Diff(tc.want, offeredTools(got)); diff != "" {
			t.Errorf("%s %q %s: (-want +got)\n%s", tc.model, tc.tools, tc.add, diff)
		}
		choice := strings.TrimPrefix(strings.TrimPrefix(tc.want[0], "bash_20250124 "), "function ")
		if got.ToolChoice.Name != choice {
			t.Errorf("%s: the choice is %q, want %q", tc.model, got.ToolChoice.Name, choice)
		}
		if knows := strings.Contains(got.System, "The container has git."); knows != (choice == "bash") {
			t.Errorf("%s: the instructions are %q", tc.model, got.System)
		}
	}
	if _, err := anthropic.New(anthropic.Options{NativeTools: []string{"rm"}}); err == nil {
		t.Error("an unknown tool was accepted")
	}
}

// Calls of Anthropic's tools become calls of the function, however they are cut into pieces.
func TestNativeCalls(t *testing.T) {
	edited := `{"command":"str_replace","path":"/a b","old_str":"it's\n<x>","new_str":""}`
	shell := func(command string) string {
		raw, err := json.Marshal(map[string]any{"commands": []string{command}})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	for _, tc := range []struct{ tool, input, name, want string }{
		{"bash", `{"command":"echo \"a\\\\b\" é 船 \u00e9"}`, "shell", shell(`echo "a\\b" é 船 é`)},
		{"bash", ` { "command" : "ls", "restart": false }`, "shell", shell("ls")},
		{"bash", `{"restart":false,"command":"ls"}`, "shell", shell("ls")},
		{"bash", `{"restart":true}`, "shell", shell("restart_shell")},
		{"bash", `{"restart":true,"command":null}`, "shell", shell("restart_shell")},
		{"bash", `{"command":""}`, "shell", shell("")},
		{"bash", `{}`, "shell", `{"commands":[]}`},
		{"bash", `{"command":["ls"]}`, "shell", `{"commands":[["ls"]]}`},
		{"str_replace_based_edit_tool", edited, "shell", shell("str_replace_based_edit_tool <<'EOF'\n" + edited +
			"\nEOF")},
		{"str_replace_based_edit_tool", "{\n \"command\": \"view\"\n}", "shell",
			shell("str_replace_based_edit_tool <<'EOF'\n{\"command\":\"view\"}\nEOF")},
		{"code_execution", `{"code":"1+1"}`, "code_interpreter", `{"code":"1+1"}`},
		{"f", `{"command":"ls"}`, "f", `{"command":"ls"}`},
	} {
		for size := 1; size <= len(tc.input); size += 3 {
			steps := []modeltest.Step{model.Call{ID: "toolu_1", Name: tc.tool}}
			for rest := tc.input; rest != ""; {
				n := min(size, len(rest))
				for n < len(rest) && rest[n]&0xC0 == 0x80 {
					n++ // within a character
				}
				steps = append(steps, model.Call{Arguments: rest[:n]})
				rest = rest[n:]
			}
			p, _ := open(t, modeltest.Always(modeltest.Reply(append(steps, model.Finish{Reason: model.FinishStop})...)))
			a, err := modeltest.Collect(t, p, &model.Request{Model: "claude-sonnet-4-5", Tools: hosted,
				Items: []berth.Item{user("hi")}})
			if err != nil || len(a.Calls) != 1 {
				t.Fatalf("%s: got %+v, %v", tc.input, a, err)
			}
			if c := a.Calls[0]; c.CallID != "toolu_1" || c.Name != tc.name || !same(c.Arguments, tc.want) {
				t.Errorf("%s in pieces of %d: got %s %s, want %s", tc.input, size, c.Name, c.Arguments, tc.want)
			}
		}
	}
}

// same reports whether two texts are the same JSON.
func same(a, b string) bool {
	var x, y any
	return json.Unmarshal([]byte(a), &x) == nil && json.Unmarshal([]byte(b), &y) == nil && cmp.Equal(x, y)
}

// Input that is not JSON stays invalid, so that the tool reports it to the model.
func TestMalformedNativeCalls(t *testing.T) {
	for _, tc := range []struct{ tool, input string }{
		{"bash", `{"command":"rm -rf`}, {"bash", `{"command":"ls\`}, {"bash", `{"comm`}, {"bash", "ls"},
		{"bash", `{"restart":`},
		{"str_replace_based_edit_tool", `{"command":"create","path":"/a","file_text":"`},
		{"str_replace_based_edit_tool", "EOF\nrm -rf /"},
	} {
		p, _ := open(t, modeltest.Always(modeltest.Reply(model.Call{ID: "toolu_1", Name: tc.tool, Arguments: tc.input},
			model.Finish{Reason: model.FinishLength})))
		a, err := modeltest.Collect(t, p, &model.Request{Model: "claude-sonnet-4-5", Tools: hosted,
			Items: []berth.Item{user("hi")}})
		if err != nil || len(a.Calls) != 1 || a.Calls[0].Name != "shell" || json.Valid([]byte(a.Calls[0].Arguments)) {
			t.Errorf("%s: got %+v, %v, want invalid arguments", tc.input, a.Calls, err)
		}
	}
}

// The history of other vendors, in which a call has several commands, becomes calls of the tools that
// the model knows, in an order and with ids that Anthropic accepts.
func TestNativeHistory(t *testing.T) {
	shell := func(id string, commands ...string) berth.Item {
		raw, err := json.Marshal(map[string]any{"commands": commands, "timeout_ms": nil})
		if err != nil {
			t.Fatal(err)
		}
		return berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: id, Name: "shell",
			Arguments: string(raw)})
	}
	result := func(out, errs string, code int) string {
		return fmt.Sprintf(`{"outcome":{"type":"exit","exit_code":%d},"stderr":%q,"stdout":%q}`, code, errs, out)
	}
	view := `{"command":"view","path":"/a"}`
	req := &model.Request{Model: "claude-opus-5-5", Tools: hosted, Items: []berth.Item{
		user("hi"),
		shell("call.1", "ls", "false"), output("call.1", `{"output":[`+result("a\n", "", 0)+","+result("x", "y",
			1)+`]}`),
		shell("call_2", "restart_shell"), output("call_2", `{"output":[`+result("ok\n", "", 0)+`]}`),
		shell("call_3", "str_replace_based_edit_tool <<'EOF'\n"+view+"\nEOF"),
		output("call_3", `{"output":[`+result("", "Error: no\n", 1)+`]}`),
		shell("call_4", "str_replace_based_edit_tool <<'EOF'\nnot json\nEOF"),
		output("call_4", `{"output":[{"outcome":{"type":"timeout"},"stderr":"","stdout":""}]}`),
		shell("call_5", "a", "b"), output("call_5", "refused"),
		shell("call_6", "a", "b"), output("call_6", `{"output":[`+result("", "invalid", 2)+`]}`),
		shell("call_7"), output("call_7", "nothing"), shell("call_8", "a"),
		berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: "call_9", Name: "code_interpreter",
			Arguments: `{"code":"1"}`}), output("call_9", "1"),
	}}
	got, _ := received(t, req)
	var lines []string
	for _, m := range got.Messages {
		for _, c := range m.Calls {
			lines = append(lines, c.Name+" "+c.Arguments)
		}
		if m.Role == "tool" {
			lines = append(lines, "= "+m.Text)
		}
	}
	want := []string{
		`bash {"command":"ls"}`, `bash {"command":"false"}`, "= a\n", "= x\ny\nexit code 1",
		`bash {"restart":true}`, "= ok\n",
		"str_replace_based_edit_tool " + view, "= Error: no\n",
		`bash {"command":"str_replace_based_edit_tool <<'EOF'\nnot json\nEOF"}`,
		"= The command took too long and was ended.",
		`bash {"command":"a"}`, `bash {"command":"b"}`, "= refused", "= refused",
		`bash {"command":"a"}`, `bash {"command":"b"}`, "= invalid\nexit code 2",
		"= The call was interrupted; there is no output.",
		`bash {"commands":null,"timeout_ms":null}`, "= nothing",
	}
	if len(lines) < len(want) || !cmp.Equal(want, lines[:len(want)]) {
		t.Errorf("(-want +got)\n%s", cmp.Diff(want, lines))
	}
	rest := strings.Join(lines[min(len(want), len(lines)):], "\n")
	for _, part := range []string{`bash {"command":"a"}`, `code_execution {"code":"1"}`,
		"= The call was interrupted; there is no output.", "= 1"} {
		if !strings.Contains(rest, part) {
			t.Errorf("no %q in\n%s", part, rest)
		}
	}
	for id, failed := range map[string]bool{"call_2": false, "call_3": true, "call_4": true, "call_5": false,
		"call_6": true, "call_6_2": true} {
		if !strings.Contains(string(got.Body), `"tool_use_id":"`+id+`"`) {
			t.Errorf("no result of %s", id)
		}
		if is := strings.Contains(string(got.Body), resultOf(t, got.Body, id)+`,"is_error":true`); is != failed {
			t.Errorf("%s: is_error is %v", id, is)
		}
	}
}

// resultOf returns the JSON of a result up to its content.
func resultOf(t *testing.T, body []byte, id string) string {
	t.Helper()
	_, rest, ok := strings.Cut(string(body), `"tool_use_id":"`+id+`"`)
	if !ok {
		t.Fatalf("no result of %s", id)
	}
	end := strings.Index(rest, "}")
	if is := strings.Index(rest, `,"is_error"`); is >= 0 && is < end {
		end = is
	}
	return `"tool_use_id":"` + id + `"` + rest[:end]
}
