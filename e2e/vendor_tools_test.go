package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
)

// useVendorTools is a model of Anthropic that calls the tools it is offered, and refuses a request without
// them. Each line of the last user message is a call: the tool's name and its input.
func useVendorTools(n int, got *modeltest.Request) modeltest.Turn {
	offered := map[string]string{}
	for _, tool := range got.Tools {
		offered[tool.Name] = tool.Type
	}
	if offered["bash"] != "bash_20250124" || offered["str_replace_based_edit_tool"] != "text_editor_20250728" ||
		offered["shell"] != "" {
		return modeltest.Turn{Refusal: &modeltest.Refusal{Status: 400, Message: fmt.Sprintf("offered %v", offered)}}
	}
	var task string
	results := 0
	for _, m := range got.Messages {
		switch m.Role {
		case "user":
			task, results = m.Text, 0
		case "tool":
			results++
		}
	}
	finish := model.Finish{Reason: model.FinishStop}
	if lines := strings.Split(task, "\n"); results < len(lines) {
		name, input, _ := strings.Cut(lines[results], " ")
		return modeltest.Reply(model.Call{ID: fmt.Sprintf("toolu_%02d", n), Name: name,
			Arguments: input[:len(input)/2]}, model.Call{Arguments: input[len(input)/2:]}, finish)
	}
	return modeltest.Reply(model.Text{Text: "Done."}, finish)
}

// TestVendorTools: a model of Anthropic works in the container with the shell and the editor of its vendor.
// Models of other vendors continue the chain, and see the calls as those of the shell; so does the first
// model afterwards, with its own ids.
func TestVendorTools(t *testing.T) {
	chat, gemini := modeltest.NewChatServer(t, recite), modeltest.NewGeminiServer(t, recite)
	claude := modeltest.NewAnthropicServer(t, useVendorTools)
	s := newServerWith(t, fmt.Sprintf(`
models:
  - {match: qwen*, provider: chat, base_url: %q, api_key: none}
  - {match: claude-*, provider: anthropic, base_url: %q, api_key: none}
  - {match: gemini-*, provider: gemini, base_url: %q, api_key: none}
`, chat.URL, claude.URL, gemini.URL))
	c := s.client()
	previous := ""
	ask := func(model, input string) *responses.Response {
		t.Helper()
		task := shellTask(input)
		task.Model = model
		if previous != "" {
			task.PreviousResponseID = openai.String(previous)
		}
		r, err := c.Responses.New(t.Context(), task)
		if err != nil {
			t.Fatalf("%s: %v", model, err)
		}
		if r.Status != responses.ResponseStatusCompleted {
			t.Fatalf("%s: %s, %s", model, r.Status, r.RawJSON())
		}
		previous = r.ID
		return r
	}
	editor := func(fields map[string]any) string {
		raw, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		return "str_replace_based_edit_tool " + string(raw)
	}
	type result struct {
		line, out, errs string
		code            int64
	}
	steps := []result{
		{`bash {"command":"mkdir -p src && cd src && export COLOUR='red' && pwd"}`, "/mnt/data/src\n", "", 0},
		{editor(map[string]any{"command": "create", "path": "/mnt/data/src/a.py",
			"file_text": "def f():\n    return 'EOF'\nEOF\n$(id)\n"}), "Created /mnt/data/src/a.py with 4 lines.\n",
			"", 0},
		{editor(map[string]any{"command": "view", "path": "a.py", "view_range": []int{1, 2}}),
			"     1\tdef f():\n     2\t    return 'EOF'\n", "", 0},
		{editor(map[string]any{"command": "str_replace", "path": "a.py", "old_str": "'EOF'\nEOF\n$(id)",
			"new_str": "\"`é`\""}), "Changed a.py. It now reads:\n     1\tdef f():\n     2\t    return \"`é`\"\n",
			"", 0},
		{editor(map[string]any{"command": "insert", "path": "/mnt/data/src/a.py", "insert_line": 0,
			"insert_text": "# one"}),
			"Changed /mnt/data/src/a.py. It now reads:\n     1\t# one\n     2\tdef f():\n     3\t    return \"`é`\"\n",
			"", 0},
		{`bash {"command":"cat a.py; echo $COLOUR; exit 3"}`, "# one\ndef f():\n    return \"`é`\"\nred\n", "", 3},
		{`bash {"restart":true}`, "The shell was restarted.\n", "", 0},
		{`bash {"command":"pwd; echo [$COLOUR]"}`, "/mnt/data\n[]\n", "", 0},
		{editor(map[string]any{"command": "str_replace", "path": "src/a.py", "old_str": "none", "new_str": "x"}), "",
			"does not occur", 1},
		{editor(map[string]any{"command": "view", "path": "/bin/true"}), "", "binary file", 1},
		{editor(map[string]any{"command": "view", "path": "../../etc/shadow"}), "", "ermission denied", 1},
		{editor(map[string]any{"command": "create", "path": "/mnt/data/../../etc/passwd", "file_text": "x"}), "",
			"cannot", 1},
		{editor(map[string]any{"command": "str_replace", "path": "src/a.py", "old_str": strings.Repeat("x", 1<<20),
			"new_str": ""}), "", "Nothing was run", 2},
		{`bash {"command":"cut`, "", "not valid", 2},
		{`str_replace_based_edit_tool {"command":"create","path":"/mnt/data/half`, "", "not valid", 2},
	}
	var lines []string
	for _, step := range steps {
		lines = append(lines, step.line)
	}
	first := ask("claude-sonnet-4-5", strings.Join(lines, "\n"))
	var got []responses.ResponseFunctionShellToolCallOutputOutput
	ids := map[string]bool{}
	for _, it := range first.Output {
		switch it.Type {
		case "shell_call":
			ids[it.CallID] = true
			if env := it.AsShellCall().Environment; env.ContainerID == "" {
				t.Errorf("call %s names no container", it.CallID)
			}
		case "shell_call_output":
			got = append(got, it.AsShellCallOutput().Output...)
		}
	}
	if len(got) != len(steps) || len(ids) != len(steps) || !ids["toolu_00"] {
		t.Fatalf("got %d results of calls %v, want %d:\n%s", len(got), ids, len(steps), first.RawJSON())
	}
	for i, want := range steps {
		if o := got[i]; o.Stdout != want.out || !strings.Contains(o.Stderr, want.errs) ||
			o.Outcome.AsExit().ExitCode != want.code {
			t.Errorf("%.200s:\ngot  %q, %q, %d\nwant %q, %q, %d", want.line, o.Stdout, o.Stderr,
				o.Outcome.AsExit().ExitCode, want.out, want.errs, want.code)
		}
	}
	results := map[string]string{}
	for _, m := range claude.Requests()[len(claude.Requests())-1].Messages {
		if m.Role == "tool" {
			results[m.CallID] = m.Text
		}
	}
	if results["toolu_00"] != "/mnt/data/src\n" || !strings.HasSuffix(results["toolu_05"], "red\nexit code 3") ||
		!strings.HasPrefix(results["toolu_09"], "Error: ") {
		t.Errorf("the model reads %q", results)
	}
	// Others see calls of the shell with the same ids, and may use the editor as they see it used.
	for name, double := range map[string]*modeltest.Double{"qwen3-32b": chat.Double,
		"gemini-3.5-flash": gemini.Double} {
		arguments, err := json.Marshal(map[string]any{"commands": []string{"cat src/a.py",
			"str_replace_based_edit_tool <<'EOF'\n" + `{"command":"view","path":"src"}` + "\nEOF"}})
		if err != nil {
			t.Fatal(err)
		}
		r := ask(name, "```shell\n"+string(arguments)+"\n```")
		if outs := stdouts(r); len(outs) != 2 || !strings.HasPrefix(outs[0], "# one\n") || !strings.Contains(outs[1],
			"src/a.py\n") {
			t.Errorf("%s: got %q", name, outs)
		}
		calls := double.Requests()[0].Messages
		seen := 0
		for _, m := range calls {
			for _, call := range m.Calls {
				if call.Name != "shell" || !strings.Contains(call.Arguments, `"commands"`) {
					t.Errorf("%s: got call %s %.100s", name, call.Name, call.Arguments)
				}
				if ids[call.ID] {
					seen++
				}
			}
		}
		if seen != len(steps) {
			t.Errorf("%s: got %d calls with their ids, want %d", name, seen, len(steps))
		}
	}
	ask("claude-sonnet-4-5", `bash {"command":"echo again"}`)
	requests := claude.Requests()
	all, split := 0, 0
	for _, m := range requests[len(requests)-1].Messages {
		for _, call := range m.Calls {
			if call.Name != "bash" && call.Name != "str_replace_based_edit_tool" {
				t.Errorf("the model sees call %s of %q", call.ID, call.Name)
			}
			if all++; strings.HasSuffix(call.ID, "_2") {
				split++
			}
		}
	}
	if want := len(steps) + 2*2 + 1; all != want || split != 2 {
		t.Errorf("in the end, the model sees %d calls, %d of them second commands, want %d and 2", all, split, want)
	}
}
