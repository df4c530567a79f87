package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// An echo is the smallest hosted tool: {"type":"echo"} offers a function that returns
// its text. It needs nothing of the server.
type echo struct{}

// echoKind is the registration line of the tool.
func echoKind() tool.Kind {
	lower := func(it berth.Item, field string) (text string, err error) {
		var fields map[string]any
		err = it.Decode(&fields)
		text, _ = fields[field].(string)
		return text, err
	}
	return tool.Kind{
		Type: "echo", Name: "echo",
		Rules: func(*tool.Registry) tool.Rules {
			offered := rule.Object(rule.Fields{"type": rule.AnyText})
			return tool.Rules{Tool: offered, Choice: offered,
				Call:   rule.Call(rule.Fields{"text": rule.AnyText}, "text"),
				Output: rule.Call(rule.Fields{"echo": rule.AnyText}, "echo")}
		},
		Bind: func(tool.Context, berth.Tool) (tool.Tool, error) { return echo{}, nil },
		Calls: &tool.Calls{Call: "echo_call", Output: "echo_call_output", CallPrefix: "ec_", OutputPrefix: "eco_",
			Hosted: func(berth.Item) bool { return true },
			LowerCall: func(it berth.Item) (name, arguments string, err error) {
				text, err := lower(it, "text")
				raw, _ := json.Marshal(map[string]string{"text": text})
				return "echo", string(raw), err
			},
			LowerOutput: func(it berth.Item) (json.RawMessage, error) {
				text, err := lower(it, "echo")
				return berth.StringDelta(text), err
			}},
	}
}

func (echo) Spec() tool.Spec {
	return tool.Spec{Function: tool.Function("echo", "Returns a text.", json.RawMessage(`{"type":"object"}`)),
		Call: "echo_call"}
}

func (echo) NewCall(callID string) tool.Call {
	return &echoCall{ID: berth.NewID("ec_"), Type: "echo_call", Status: berth.StatusInProgress, CallID: callID}
}

func (echo) ResumeCall(item, _ berth.Item, _ []berth.Event) (tool.Call, error) {
	var c echoCall
	err := item.Decode(&c)
	return &c, err
}

type echoCall struct {
	ID     string       `json:"id"`
	Type   string       `json:"type"`
	Status berth.Status `json:"status"`
	CallID string       `json:"call_id"`
	Text   string       `json:"text"`
}

func (c *echoCall) Item() berth.Item         { return berth.NewItem(c) }
func (*echoCall) Write(string) []berth.Event { return nil }

func (c *echoCall) Close(arguments string) ([]berth.Event, berth.Item, string) {
	_ = json.Unmarshal([]byte(arguments), c)
	c.Status = berth.StatusCompleted
	return nil, c.Item(), ""
}

func (c *echoCall) Run(ctx context.Context, out tool.Emitter) error {
	output := map[string]any{"id": berth.NewID("eco_"), "type": "echo_call_output", "call_id": c.CallID,
		"status": berth.StatusInProgress, "echo": ""}
	index, err := out.Add(ctx, berth.NewItem(output))
	if err != nil {
		return err
	}
	output["status"], output["echo"] = berth.StatusCompleted, c.Text
	return out.Done(ctx, index, berth.NewItem(output))
}

// post sends a response's request to a handler, past the check of the answer against
// OpenAI's document, which does not know the tool.
func post(t *testing.T, h http.Handler, body string) (status int, answer string) {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	got, err := http.Post(srv.URL+"/v1/responses", "application/json", strings.NewReader(body))
	check(t, err)
	defer got.Body.Close()
	raw, err := io.ReadAll(got.Body)
	check(t, err)
	return got.StatusCode, string(raw)
}

// A hosted tool that is only registered with its Kind is offered, called and run, and its
// items are accepted as input.
func TestRegisteredTool(t *testing.T) {
	t.Parallel()
	m := &playedModel{turns: [][]any{
		turn(model.Call{ID: "call_1", Name: "echo", Arguments: `{"text":"ahoy"}`}, stopped),
		turn(model.Text{Text: "It said ahoy."}, stopped)}}
	h := newHouseWith(t, []tool.Kind{echoKind()}, nil, model.Rule{Match: "played", Provider: m})
	handler := api.New(h.opts)
	status, body := post(t, handler,
		`{"model":"played","input":"Echo ahoy.","tools":[{"type":"echo"}],"tool_choice":{"type":"echo"}}`)
	var r berth.Response
	if err := json.Unmarshal([]byte(body), &r); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	var got []string
	for _, it := range r.Output {
		got = append(got, string(it.Type())+" "+string(it.Status()))
	}
	if diff := cmp.Diff([]string{"echo_call completed", "echo_call_output completed", "message completed"},
		got); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if choice := m.asked[0].ToolChoice; choice.Name != "echo" || len(m.asked[0].Tools) != 1 {
		t.Errorf("the first turn offers %v and forces %q", m.asked[0].Tools, choice.Name)
	}
	var call berth.FunctionCall
	var output berth.FunctionCallOutput
	items := m.asked[1].Items
	check(t, items[1].Decode(&call))
	check(t, items[2].Decode(&output))
	if call.Name != "echo" || call.Arguments != `{"text":"ahoy"}` || string(output.Output) != `"ahoy"` {
		t.Errorf("the second turn shows %s and %s", items[1].Raw(), items[2].Raw())
	}

	status, body = post(t, handler, `{"model":"played","input":[{"type":"echo_call","call_id":"c","text":"x"},{"type":"echo_call_output","call_id":"c","echo":"x"},
		{"role":"user","content":"And?"}]}`)
	if status != http.StatusOK {
		t.Errorf("items of the tool as input: %d %s", status, body)
	}
	status, body = post(t, handler, `{"model":"played","input":[{"type":"echo_call","call_id":"c"}]}`)
	if want := "Missing required parameter: 'input[0].text'."; status != http.StatusBadRequest ||
		!strings.Contains(body, want) {
		t.Errorf("an incomplete call as input: %d %s, want %q", status, body, want)
	}
}

// Without its registration, the tool and its items are refused by name.
func TestUnregisteredTool(t *testing.T) {
	t.Parallel()
	h := newHouse(t, nil)
	handler := api.New(h.opts)
	for body, want := range map[string]string{
		`{"model":"scripted","input":"x","tools":[{"type":"echo"}]}`:                   "Invalid value: 'echo'.",
		`{"model":"scripted","input":[{"type":"echo_call","call_id":"c","text":"x"}]}`: "Invalid value: 'echo_call'.",
		`{"model":"scripted","input":"x","tools":[],"tool_choice":{"type":"echo"}}`:    "Invalid value: 'echo'.",
	} {
		if status, answer := post(t, handler, body); status != http.StatusBadRequest || !strings.Contains(answer,
			want) {
			t.Errorf("%s: %d %s, want %q", body, status, answer, want)
		}
	}
	var req berth.ResponseRequest
	check(t, json.Unmarshal([]byte(`{"model":"scripted","input":"x","tools":[{"type":"echo"}]}`), &req))
	_, err := h.engine.Create(t.Context(), berth.Caller{Project: berth.DefaultProject}, &req)
	if refused, ok := errors.AsType[*berth.Error](err); !ok ||
		refused.Message != "Tools of type 'echo' are not supported." || refused.Param != "tools[0].type" {
		t.Errorf("the engine answers %v", err)
	}
}
