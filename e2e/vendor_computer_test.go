package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
)

// useVendorComputer is a model of Anthropic that uses Anthropic's computer tool, and refuses a request without it. Each
// line of the last user message is the input of a call.
func useVendorComputer(n int, got *modeltest.Request) modeltest.Turn {
	if len(got.Tools) != 1 || got.Tools[0].Type != "computer_20251124" ||
		!strings.Contains(got.Header.Get("Anthropic-Beta"), "computer-use-2025-11-24") {
		return modeltest.Turn{Refusal: &modeltest.Refusal{Status: 400, Message: fmt.Sprintf("offered %v, %q", got.Tools,
			got.Header.Get("Anthropic-Beta"))}}
	}
	var lines []string
	next := 0 // the line after the last call, which has another action than the others
	for _, m := range got.Messages {
		if m.Role == "user" {
			lines, next = strings.Split(m.Text, "\n"), 0
		}
		for _, call := range m.Calls {
			next = 1 + slices.IndexFunc(lines, func(line string) bool {
				return actionOf(line) == actionOf(call.Arguments)
			})
		}
	}
	finish := model.Finish{Reason: model.FinishStop}
	if next < len(lines) {
		return modeltest.Reply(model.Call{ID: fmt.Sprintf("toolu_%02d", n), Name: "computer", Arguments: lines[next]},
			finish)
	}
	return modeltest.Reply(model.Text{Text: "Done."}, finish)
}

// actionOf returns the action of an input of Anthropic's computer tool.
func actionOf(input string) string {
	var in struct{ Action string }
	_ = json.Unmarshal([]byte(input), &in)
	return in.Action
}

// TestVendorComputer: a model of Anthropic uses the client's computer with the tool of its vendor. The client and a
// model of another vendor see computer_calls of Responses.
func TestVendorComputer(t *testing.T) {
	chat, claude := modeltest.NewChatServer(t, recite), modeltest.NewAnthropicServer(t, useVendorComputer)
	s := newServerWith(t, fmt.Sprintf(`
models:
  - {match: qwen*, provider: chat, base_url: %q, api_key: none}
  - {match: claude-*, provider: anthropic, base_url: %q, api_key: none}
`, chat.URL, claude.URL))
	tools := option.WithJSONSet("tools",
		[]any{map[string]any{"type": "computer_use_preview", "display_width": 800, "display_height": 600,
			"environment": "linux"}})
	previous := ""
	create := func(model string, input any) *responses.Response {
		t.Helper()
		options := []option.RequestOption{tools, option.WithJSONSet("input", input)}
		if previous != "" {
			options = append(options, option.WithJSONSet("previous_response_id", previous))
		}
		r, err := s.client().Responses.New(t.Context(), responses.ResponseNewParams{Model: model}, options...)
		if err != nil {
			t.Fatalf("%s: %v", model, err)
		}
		previous = r.ID
		return r
	}
	// called returns the only call of a response and its action.
	called := func(r *responses.Response) (id, action string) {
		t.Helper()
		var call struct {
			CallID string          `json:"call_id"`
			Action json.RawMessage `json:"action"`
		}
		n := 0
		for _, it := range r.Output {
			if it.Type == "computer_call" {
				if err := json.Unmarshal([]byte(it.RawJSON()), &call); err != nil {
					t.Fatal(err)
				}
				n++
			}
		}
		if n != 1 {
			t.Fatalf("%d calls in %s", n, r.RawJSON())
		}
		return call.CallID, string(call.Action)
	}
	const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	screen := func(id string) []any {
		return []any{map[string]any{"type": "computer_call_output", "call_id": id,
			"output": map[string]any{"type": "computer_screenshot", "image_url": "data:image/png;base64," + png}}}
	}
	// The call with an action that has no equivalent is not shown to the client: the model reads why, and continues.
	r := create("claude-opus-5-5", strings.Join([]string{`{"action":"left_click","coordinate":[10,20],"text":"ctrl"}`,
		`{"action":"zoom","region":[0,0,1,1]}`, `{"action":"key","text":"ctrl+Return"}`}, "\n"))
	id, action := called(r)
	if id != "toolu_00" || !sameJSON(action, `{"type":"click","button":"left","x":10,"y":20,"keys":["CTRL"]}`) {
		t.Errorf("the first call is %s %s", id, action)
	}
	id, action = called(create("claude-opus-5-5", screen(id)))
	if !sameJSON(action, `{"type":"keypress","keys":["CTRL","ENTER"]}`) {
		t.Errorf("the call after a refused one is %s", action)
	}
	requests := claude.Requests()
	body := string(requests[len(requests)-1].Body)
	for _, part := range []string{`"name":"computer","input":{"action":"left_click","coordinate":[10,20],"text":"ctrl"}`,
		`"data":"` + png + `"`, `there is no action of type \"zoom\"`} {
		if !strings.Contains(body, part) {
			t.Errorf("the model does not read %s in %s", part, body)
		}
	}
	if r = create("claude-opus-5-5", screen(id)); r.OutputText() != "Done." {
		t.Errorf("the chain ends with %s", r.RawJSON())
	}
	// A model of another vendor sees calls of the function.
	_, action = called(create("qwen3-32b",
		"```computer_use_preview\n{\"action\":{\"type\":\"move\",\"x\":1,\"y\":2}}\n```"))
	if !sameJSON(action, `{"type":"move","x":1,"y":2}`) {
		t.Errorf("the other model's call is %s", action)
	}
	var seen []string
	for _, m := range chat.Requests()[0].Messages {
		for _, call := range m.Calls {
			seen = append(seen, call.Name+" "+call.Arguments)
		}
	}
	if len(seen) < 2 || !strings.HasPrefix(seen[0], "computer_use_preview ") || !strings.Contains(seen[0], `"click"`) ||
		!strings.Contains(seen[len(seen)-1], `"ENTER"`) {
		t.Errorf("the other model sees %q", seen)
	}
}

// TestVendorComputerHosted: the calls run in the chain's container, and a failure there is what the model reads.
func TestVendorComputerHosted(t *testing.T) {
	claude := modeltest.NewAnthropicServer(t, useVendorComputer)
	s := newServerWith(t,
		fmt.Sprintf("models:\n  - {match: claude-*, provider: anthropic, base_url: %q, api_key: none}\n", claude.URL))
	r, err := s.client().Responses.New(t.Context(), responses.ResponseNewParams{Model: "claude-opus-5-5",
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(`{"action":"screenshot"}`)}},
		option.WithJSONSet("tools",
			[]any{map[string]any{"type": "computer", "environment": map[string]any{"type": "container_auto",
				"berth": map[string]any{"template": "base"}}}}))
	if err != nil {
		t.Fatal(err)
	}
	if all := screens(t, r); len(all) != 1 || !strings.Contains(all[0].Berth.Message, "no desktop") ||
		r.OutputText() != "Done." {
		t.Errorf("%s", r.RawJSON())
	}
	requests := claude.Requests()
	last := requests[len(requests)-1]
	if body := string(last.Body); !strings.Contains(body, `"display_width_px":1024,"display_height_px":768`) ||
		!strings.Contains(body, "no desktop") || !strings.Contains(last.System, "desktop in a Linux container") {
		t.Errorf("the model is sent %s", body)
	}
}

// sameJSON reports whether two texts are the same JSON.
func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}
