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

// desktop returns a computer's function as the engine passes it.
func desktop(name string, width, height int) berth.FunctionTool {
	return berth.FunctionTool{Type: "function", Name: name, Description: "Uses a desktop.",
		Parameters: json.RawMessage(`{"type":"object"}`),
		Hosted: &berth.HostedFunction{Type: berth.ToolComputer, About: func() string {
			return "The panel starts the browser."
		}, Width: width, Height: height}}
}

func TestComputerTool(t *testing.T) {
	older, newer := "computer_20250124 computer", "computer_20251124 computer"
	for _, tc := range []struct {
		model    string
		native   []string
		function berth.FunctionTool
		more     string // the name of another function
		want     string
	}{
		{"claude-sonnet-4-5", nil, desktop("computer", 1024, 768), "f", older},
		{"claude-3-7-sonnet-20250219", nil, desktop("computer_use_preview", 800, 600), "f", older},
		{"claude-haiku-4-5-20251001", nil, desktop("computer", 1024, 768), "f", older},
		{"claude-opus-4-5", nil, desktop("computer", 1024, 768), "f", newer},
		{"claude-sonnet-4-6", nil, desktop("computer", 1024, 768), "f", newer},
		{"claude-opus-5-5", nil, desktop("computer_use_preview", 1024, 768), "f", newer},
		{"claude-opus-5-5", nil, desktop("computer", 0, 0), "f", "function computer"},
		{"claude-opus-5-5", nil, desktop("computer_use_preview", 800, 600), "computer",
			"function computer_use_preview"},
		{"claude-opus-5-5", []string{"shell"}, desktop("computer", 800, 600), "f", "function computer"},
		{"claude-3-5-sonnet-20241022", nil, desktop("computer", 800, 600), "f", "function computer"},
		{"kimi-k2", nil, desktop("computer", 800, 600), "f", "function computer"},
		{"kimi-k2", []string{"computer"}, desktop("computer", 800, 600), "f", older},
	} {
		req := &model.Request{Model: tc.model,
			Tools:      []berth.FunctionTool{tc.function, {Type: "function", Name: tc.more}},
			ToolChoice: model.ToolChoice{Mode: "function", Name: tc.function.Name}}
		got, body := received(t, req, func(o *anthropic.Options) { o.NativeTools = tc.native })
		if diff := cmp.Diff([]string{tc.want, "function " + tc.more}, offeredTools(got)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tc.model, diff)
		}
		beta := got.Header.Get("Anthropic-Beta")
		native := strings.HasPrefix(tc.want, "computer_")
		if strings.Contains(beta, "computer-use-2025-01-24") != (tc.want == older) || strings.Contains(beta,
			"computer-use-2025-11-24") != (tc.want == newer) {
			t.Errorf("%s: the betas are %q", tc.model, beta)
		}
		if _, name, _ := strings.Cut(tc.want, " "); got.ToolChoice.Name != name {
			t.Errorf("%s: the choice is %q", tc.model, got.ToolChoice.Name)
		}
		size := fmt.Sprintf(`"display_width_px":%d,"display_height_px":%d`, tc.function.Hosted.Width,
			tc.function.Hosted.Height)
		if strings.Contains(string(body["tools"]), size) != native || strings.Contains(got.System,
			"The panel starts the browser.") != native {
			t.Errorf("%s: the tools are %s, the system text %q", tc.model, body["tools"], got.System)
		}
	}
}

// computerCalls are inputs of Anthropic's tool and the actions that they become. back is the input that a model sees
// for the actions, if it differs.
var computerCalls = []struct{ input, actions, back string }{
	{`{"action":"screenshot"}`, `[{"type":"screenshot"}]`, ""},
	{`{"action":"left_click","coordinate":[10,20]}`, `[{"type":"click","button":"left","x":10,"y":20}]`, ""},
	{`{"action":"right_click","coordinate":[10,20],"text":"ctrl+shift"}`,
		`[{"type":"click","button":"right","x":10,"y":20,"keys":["CTRL","SHIFT"]}]`, ""},
	{`{"action":"middle_click","coordinate":[0,0]}`, `[{"type":"click","button":"wheel","x":0,"y":0}]`, ""},
	{`{"action":"double_click","coordinate":[1,2]}`, `[{"type":"double_click","x":1,"y":2}]`, ""},
	{`{"action":"triple_click","coordinate":[1,2]}`,
		`[{"type":"double_click","x":1,"y":2},{"type":"click","button":"left","x":1,"y":2}]`, ""},
	{`{"action":"mouse_move","coordinate":[1,2]}`, `[{"type":"move","x":1,"y":2}]`, ""},
	{`{"action":"left_click_drag","start_coordinate":[1,2],"coordinate":[30,40]}`,
		`[{"type":"drag","path":[{"x":1,"y":2},{"x":30,"y":40}]}]`, ""},
	{`{"action":"scroll","coordinate":[1,2],"scroll_direction":"down","scroll_amount":3}`,
		`[{"type":"scroll","x":1,"y":2,"scroll_y":360}]`, ""},
	{`{"action":"scroll","coordinate":[1,2],"scroll_direction":"left","scroll_amount":1,"text":"shift"}`,
		`[{"type":"scroll","x":1,"y":2,"scroll_x":-120,"keys":["SHIFT"]}]`, ""},
	{`{"action":"type","text":"a <b> & \"ü\"\n"}`, `[{"type":"type","text":"a <b> & \"ü\"\n"}]`, ""},
	{`{"action":"key","text":"Return"}`, `[{"type":"keypress","keys":["ENTER"]}]`, ""},
	{`{"action":"key","text":"ctrl+Page_Down"}`, `[{"type":"keypress","keys":["CTRL","PAGEDOWN"]}]`, ""},
	{`{"action":"key","text":"ctrl++"}`, `[{"type":"keypress","keys":["CTRL","+"]}]`,
		`{"action":"key","text":"ctrl+plus"}`},
	{`{"action":"key","text":"F5"}`, `[{"type":"keypress","keys":["F5"]}]`, ""},
	{`{"action":"wait","duration":1.5}`, `[{"type":"wait"},{"type":"wait"}]`, `{"action":"wait","duration":2}`},
	// Without an equivalent: the function refuses these, and names the action or the missing part.
	{`{"action":"zoom","region":[0,0,10,10]}`, `[{"type":"zoom"}]`, `{"action":"zoom"}`},
	{`{"action":"cursor_position"}`, `[{"type":"cursor_position"}]`, ""},
	{`{"action":"hold_key","text":"shift","duration":1}`, `[{"type":"hold_key"}]`, `{"action":"hold_key"}`},
	{`{"action":"left_mouse_down"}`, `[{"type":"left_mouse_down"}]`, ""},
	{`{"action":"left_mouse_up"}`, `[{"type":"left_mouse_up"}]`, ""},
	{`{"action":"left_click"}`, `[{"type":"click","button":"left"}]`, ""},
	{`{"action":"left_click_drag","coordinate":[30,40]}`, `[{"type":"drag"}]`, `{"action":"left_click_drag"}`},
	{`{"action":"scroll","coordinate":[1,2],"scroll_direction":"sideways"}`, `[{"type":"scroll sideways","x":1,"y":2}]`,
		`{"action":"scroll sideways"}`},
	{`{"action":"type"}`, `[{"type":"type"}]`, ""},
	{`{"action":"key"}`, `[{"type":"keypress"}]`, ""},
	{`{}`, `[{"type":""}]`, `{"action":""}`},
}

func TestComputerCalls(t *testing.T) {
	for _, tc := range computerCalls {
		for _, name := range []string{"computer", "computer_use_preview"} {
			half := len(tc.input) / 2
			p, _ := open(t, modeltest.Always(modeltest.Reply(model.Call{ID: "toolu_1", Name: "computer",
				Arguments: tc.input[:half]}, model.Call{Arguments: tc.input[half:]},
				model.Finish{Reason: model.FinishStop})))
			a, err := modeltest.Collect(t, p, &model.Request{Model: "claude-sonnet-4-5",
				Tools: []berth.FunctionTool{desktop(name, 800, 600)}, Items: []berth.Item{user("hi")}})
			if err != nil || len(a.Calls) != 1 {
				t.Fatalf("%s: got %+v, %v", tc.input, a, err)
			}
			want := `{"actions":` + tc.actions + `}`
			var actions []json.RawMessage
			if err := json.Unmarshal([]byte(tc.actions), &actions); err != nil {
				t.Fatal(err)
			}
			if name == "computer_use_preview" && len(actions) == 1 { // it takes one action
				want = `{"action":` + string(actions[0]) + `}`
			}
			if c := a.Calls[0]; c.Name != name || !same(c.Arguments, want) {
				t.Errorf("%s: got %s %s, want %s", tc.input, c.Name, c.Arguments, want)
			}
		}
	}
	for _, input := range []string{`{"action":"left_cl`, `{"action":["screenshot"]}`, `screenshot`} {
		p, _ := open(t, modeltest.Always(modeltest.Reply(model.Call{ID: "toolu_1", Name: "computer", Arguments: input},
			model.Finish{Reason: model.FinishLength})))
		a, err := modeltest.Collect(t, p, &model.Request{Model: "claude-sonnet-4-5",
			Tools: []berth.FunctionTool{desktop("computer", 800, 600)}, Items: []berth.Item{user("hi")}})
		if err != nil || len(a.Calls) != 1 || a.Calls[0].Arguments != input {
			t.Errorf("%s: got %+v, %v, want the input", input, a.Calls, err)
		}
	}
}

// The history, also that of other vendors, becomes calls of Anthropic's tool, with the screenshot as an image.
func TestComputerHistory(t *testing.T) {
	call := func(id, name, arguments string) berth.Item {
		return berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: id, Name: name,
			Arguments: arguments})
	}
	shot := func(id string) berth.Item {
		return berth.NewItem(map[string]any{"type": "function_call_output", "call_id": id, "output": []any{
			map[string]any{"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"},
			map[string]any{"type": "input_text", "text": "shot " + id}}})
	}
	shown := func(arguments string, name string) (inputs []string, got *modeltest.Request) {
		t.Helper()
		got, _ = received(t, &model.Request{Model: "claude-opus-5-5",
			Tools: []berth.FunctionTool{desktop("computer", 800, 600)},
			Items: []berth.Item{user("hi"), call("call_1", name, arguments), shot("call_1")}})
		for _, m := range got.Messages {
			for _, c := range m.Calls {
				inputs = append(inputs, c.Name+" "+c.Arguments)
			}
		}
		return inputs, got
	}
	for _, tc := range computerCalls {
		want := tc.back
		if want == "" {
			want = tc.input
		}
		if inputs, _ := shown(`{"actions":`+tc.actions+`}`, "computer"); len(inputs) != 1 ||
			!strings.HasPrefix(inputs[0], "computer ") || !same(strings.TrimPrefix(inputs[0], "computer "), want) {
			t.Errorf("%s: shown as %q, want %s", tc.actions, inputs, want)
		}
	}
	if inputs, _ := shown(`{"action":{"type":"keypress","keys":["CTRL","ArrowLeft"]}}`,
		"computer_use_preview"); len(inputs) != 1 || inputs[0] != `computer {"action":"key","text":"ctrl+Left"}` {
		t.Errorf("a call of the other tool is shown as %q", inputs)
	}
	inputs, got := shown(
		`{"actions":[{"type":"click","button":"back","x":1,"y":1},{"type":"scroll","x":1,"y":2,"scroll_x":250,"scroll_y":-10},{"type":"screenshot"}],"safety_checks":["x"]}`,
		"computer")
	want := []string{`computer {"action":"key","text":"alt+Left"}`,
		`computer {"action":"scroll","coordinate":[1,2],"scroll_direction":"up","scroll_amount":1}`,
		`computer {"action":"scroll","coordinate":[1,2],"scroll_direction":"right","scroll_amount":2}`,
		`computer {"action":"screenshot"}`}
	for i := range want {
		if i >= len(inputs) || !same(strings.TrimPrefix(inputs[i], "computer "), strings.TrimPrefix(want[i],
			"computer ")) {
			t.Errorf("several actions are shown as %q, want %q", inputs, want)
			break
		}
	}
	body := string(got.Body)
	if strings.Count(body, `"type":"tool_result"`) != 4 || strings.Count(body, `"data":"aGk="`) != 1 ||
		!strings.Contains(body, `"tool_use_id":"call_1_4","content":[{"type":"image"`) ||
		strings.Count(body, "The last result of these calls") != 3 {
		t.Errorf("the results are in %s", body)
	}
	if inputs, _ := shown(`{"actions":[]}`, "computer"); len(inputs) != 1 || inputs[0] != `computer {"actions":[]}` {
		t.Errorf("a call without an action is shown as %q", inputs)
	}
}
