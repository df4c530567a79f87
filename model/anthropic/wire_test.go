package anthropic_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/anthropic"
	"github.com/berth-run/berth/model/modeltest"
)

var ok = modeltest.Always(modeltest.Reply(model.Text{Text: "ok"}, model.Finish{Reason: model.FinishStop}))

func message(role string, content ...berth.Content) berth.Item {
	return berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: role, Content: content})
}

func user(text string) berth.Item {
	return message("user", berth.Content{Type: "input_text", Text: text})
}

func call(id string) berth.Item {
	return berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: id, Name: "f", Arguments: "{}"})
}

func output(id, text string) berth.Item {
	return berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: id,
		Output: berth.StringDelta(text)})
}

// received sends a request. It returns the request as the double received it, and the
// fields of its body.
func received(t *testing.T, req *model.Request, with ...func(*anthropic.Options)) (*modeltest.Request,
	map[string]json.RawMessage) {
	t.Helper()
	p, double := open(t, ok, with...)
	if req.Model == "" {
		req.Model = "claude-opus-4-8"
	}
	if req.Items == nil {
		req.Items = []berth.Item{user("hi")}
	}
	if _, err := modeltest.Collect(t, p, req); err != nil {
		t.Fatal(err)
	}
	sent := double.Requests()[0]
	var body map[string]json.RawMessage
	if err := json.Unmarshal(sent.Body, &body); err != nil {
		t.Fatal(err)
	}
	return sent, body
}

// everything returns a request with every field that the provider can send.
func everything(name string) *model.Request {
	half, effort, summary, strict := 0.5, "high", "auto", true
	return &model.Request{
		Model: name, Instructions: "Be brief.",
		Items: []berth.Item{
			message("developer", berth.Content{Type: "input_text", Text: "Be kind."}),
			message("user", berth.Content{Type: "input_text", Text: "What are these?"},
				berth.Content{Type: "input_image", ImageURL: "data:image/png;base64,iVBORw0KGgo="},
				berth.Content{Type: "input_image", ImageURL: "https://example.com/a.png"},
				berth.Content{Type: "input_file", Filename: "a.pdf", FileData: "data:application/pdf;base64,JVBERi0="},
				berth.Content{Type: "input_file", Filename: "a.txt",
					FileData: "data:text/plain;charset=utf-8;base64,aGk="},
				berth.Content{Type: "input_file", FileURL: "https://example.com/b.pdf"}),
			call("c1"),
			berth.NewItem(map[string]any{"type": "function_call_output", "call_id": "c1", "output": []berth.Content{
				{Type: "input_text", Text: "a chart"},
				{Type: "input_image", ImageURL: "data:image/png;base64,iVBORw0KGgo="}}}),
			message("assistant", berth.Content{Type: "output_text", Text: "A chart."}),
			message("developer", berth.Content{Type: "input_text", Text: "Be loud."}),
			user("And?"),
		},
		Tools: []berth.FunctionTool{{Type: "function", Name: "f", Description: "Does.", Strict: &strict,
			Parameters: json.RawMessage(
				`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`)},
			{Type: "function", Name: "g"}},
		ToolChoice: model.ToolChoice{Mode: "auto"}, MaxOutputTokens: 50_000, Temperature: &half,
		Text: berth.TextConfig{Verbosity: "low",
			Format: json.RawMessage(
				`{"type":"json_schema","name":"n","schema":{"type":"object","properties":{},"required":[],"additionalProperties":false}}`)},
		Reasoning: berth.ReasoningConfig{Effort: &effort, Summary: &summary},
		User:      "someone", Sampling: berth.Sampling{Stop: []string{"END"}},
	}
}

// The vendor's types have every field that the provider sends.
func TestVendorTypesHaveFields(t *testing.T) {
	for _, name := range []string{"claude-sonnet-4-5", "claude-opus-4-6", "claude-opus-5-5", "double-1"} {
		req := everything(name)
		if name != "claude-opus-4-6" {
			req.Temperature = nil
		}
		got, _ := received(t, req)
		var params sdk.BetaMessageNewParams
		if err := json.Unmarshal(got.Body, &params); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(params)
		if err != nil {
			t.Fatal(err)
		}
		var sent, known map[string]any
		if err := json.Unmarshal(got.Body, &sent); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &known); err != nil {
			t.Fatal(err)
		}
		delete(sent, "stream") // the SDK's method adds it
		delete(known, "stream")
		// The SDK converts a content that is a string to a list.
		for _, m := range sent["messages"].([]any) {
			for _, b := range m.(map[string]any)["content"].([]any) {
				if text, ok := b.(map[string]any)["content"].(string); ok {
					b.(map[string]any)["content"] = []any{map[string]any{"type": "text", "text": text}}
				}
			}
		}
		if diff := cmp.Diff(sent, known); diff != "" {
			t.Errorf("%s: fields unknown to the vendor's types (-sent +known):\n%s", name, diff)
		}
	}
}

// The vendor's client can read the double.
func TestVendorClientReadsDouble(t *testing.T) {
	double := modeltest.NewAnthropicServer(t, modeltest.Always(modeltest.Reply(model.Thought{Text: "Hm."},
		model.Text{Text: "Let me see."}, model.Call{ID: "c1", Name: "f"},
		model.Call{Index: 1, ID: "c2", Name: "g", Arguments: "{}"}, model.Call{Arguments: `{"a":1}`},
		model.Finish{Reason: model.FinishStop, Usage: berth.Usage{InputTokens: 3}})))
	client := sdk.NewClient(option.WithBaseURL(double.URL), option.WithAPIKey("k"), option.WithoutEnvironmentDefaults())
	stream := client.Messages.NewStreaming(t.Context(), sdk.MessageNewParams{Model: "claude-opus-4-8", MaxTokens: 9,
		Messages: []sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("hi"))}})
	var got sdk.Message
	for stream.Next() {
		if err := got.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if stream.Err() != nil {
		t.Fatal(stream.Err())
	}
	c := got.Content
	if len(c) != 4 || c[0].Thinking != "Hm." || c[0].Signature == "" || c[1].Text != "Let me see." ||
		string(c[2].Input) != `{"a":1}` || c[3].Name != "g" || got.StopReason != "tool_use" ||
		got.Usage.InputTokens != 3 {
		t.Errorf("got %+v", got)
	}
}

func TestBody(t *testing.T) {
	one, half := 1.0, 0.5
	const common = `"messages":[{"role":"user","content":[{"type":"text","text":"<hi>"}]}]`
	tests := []struct {
		name string
		req  func(*model.Request)
		with func(*anthropic.Options)
		want string
	}{
		{name: "plain", want: `{"model":"claude-opus-4-8","max_tokens":128000,` + common + `,"stream":true}`},
		{name: "defaults are omitted", req: func(r *model.Request) {
			r.Temperature, r.TopP, r.Text.Verbosity = &one, &one, "medium"
		},
			want: `{"model":"claude-opus-4-8","max_tokens":128000,` + common + `,"stream":true}`},
		{name: "an operator's limit", with: func(o *anthropic.Options) {
			o.MaxTokens = 9
		}, want: `{"model":"claude-opus-4-8","max_tokens":9,` + common + `,"stream":true}`},
		{name: "a client's limit", req: func(r *model.Request) {
			r.MaxOutputTokens = 7
		}, with: func(o *anthropic.Options) { o.MaxTokens = 9 },
			want: `{"model":"claude-opus-4-8","max_tokens":7,` + common + `,"stream":true}`},
		{name: "sampling", req: func(r *model.Request) { r.Model, r.TopP = "claude-sonnet-4-20250514", &half },
			want: `{"model":"claude-sonnet-4-20250514","max_tokens":64000,` + common + `,"top_p":0.5,"stream":true}`},
		{name: "verbosity", req: func(r *model.Request) { r.Text.Verbosity = "high" },
			want: `{"model":"claude-opus-4-8","max_tokens":128000,"system":[{"type":"text","text":"Answer at length and in detail."}],` + common + `,"stream":true}`},
		{name: "a JSON object", req: func(r *model.Request) {
			r.Text.Format = json.RawMessage(`{"type":"json_object"}`)
		},
			want: `{"model":"claude-opus-4-8","max_tokens":128000,"system":[{"type":"text","text":"Answer with one JSON object and nothing else: no words around it, no code fence."}],` + common + `,"stream":true}`},
		{name: "a choice without tools", req: func(r *model.Request) {
			r.ToolChoice.Mode, r.ParallelToolCalls = "none", false
		},
			want: `{"model":"claude-opus-4-8","max_tokens":128000,` + common + `,"stream":true}`},
		{name: "a schema without a type", req: func(r *model.Request) {
			r.Tools = []berth.FunctionTool{{Name: "f", Parameters: json.RawMessage(`{"properties":{}}`)}}
		}, want: `{"model":"claude-opus-4-8","max_tokens":128000,` + common +
			`,"tools":[{"name":"f","input_schema":{"properties":{},"type":"object"}}],"stream":true}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := &model.Request{Items: []berth.Item{user("<hi>")}, ParallelToolCalls: true}
			if tt.req != nil {
				tt.req(req)
			}
			sent, _ := received(t, req, func(o *anthropic.Options) {
				o.Cache = "off"
				if tt.with != nil {
					tt.with(o)
				}
			})
			if diff := cmp.Diff(tt.want, unescaped(sent.Body)); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
		})
	}
}

func unescaped(raw json.RawMessage) string {
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(strings.TrimSpace(string(raw)))
}

// Cache marks are set after the tools, the instructions, the previous turn and at the
// end.
func TestCacheMarks(t *testing.T) {
	req := everything("claude-opus-4-8")
	req.Temperature = nil
	const mark = `"cache_control":{"type":"ephemeral"}`
	_, body := received(t, req)
	for field, want := range map[string]int{"tools": 1, "system": 1, "messages": 2} {
		if got := strings.Count(string(body[field]), mark); got != want {
			t.Errorf("%s: got %d marks, want %d", field, got, want)
		}
	}
	var messages []struct{ Content []map[string]any }
	if err := json.Unmarshal(body["messages"], &messages); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{len(messages) - 1, len(messages) - 3} {
		if content := messages[n].Content; content[len(content)-1]["cache_control"] == nil {
			t.Errorf("message %d of %d has no mark at its end", n, len(messages))
		}
	}
	sent, _ := received(t, req, func(o *anthropic.Options) { o.Cache = "1h" })
	if got := strings.Count(string(sent.Body), `"cache_control":{"type":"ephemeral","ttl":"1h"}`); got != 4 {
		t.Errorf("for an hour: got %d marks, want 4", got)
	}
	if sent, _ := received(t, req, func(o *anthropic.Options) {
		o.Cache = "off"
	}); strings.Contains(string(sent.Body), "cache_control") {
		t.Error("the request has marks, want none with the cache off")
	}
}

// The request of a turn starts with the request of the turn before. Only then can the
// vendor read it from the cache.
func TestPrefixIsStable(t *testing.T) {
	req := &model.Request{Items: []berth.Item{user("one")}}
	var before []json.RawMessage
	for n := range 5 {
		id := strings.Repeat("c", n+1)
		req.Items = append(slices.Clone(req.Items), call(id), output(id, id))
		_, body := received(t, &model.Request{Items: req.Items}, func(o *anthropic.Options) { o.Cache = "off" })
		var messages []json.RawMessage
		if err := json.Unmarshal(body["messages"], &messages); err != nil {
			t.Fatal(err)
		}
		for i, m := range before {
			if string(m) != string(messages[i]) {
				t.Errorf("turn %d changed message %d:\n%s\n%s", n, i, m, messages[i])
			}
		}
		before = messages
	}
}

func TestInvalidInput(t *testing.T) {
	two, half := 2, 0.5
	for param, req := range map[string]*model.Request{
		"top_logprobs":      {TopLogprobs: &two},
		"frequency_penalty": {Sampling: berth.Sampling{FrequencyPenalty: &half}},
		"tools":             {Tools: []berth.FunctionTool{{Name: "f", Parameters: json.RawMessage(`[]`)}}},
		"text.format":       {Text: berth.TextConfig{Format: json.RawMessage(`{"type":"json_schema","schema":[]}`)}},
		"input": {Items: []berth.Item{message("user",
			berth.Content{Type: "input_image", ImageURL: "data:image/tiff;base64,AA=="})}},
	} {
		p, double := open(t, ok)
		req.Model = "claude-opus-4-8"
		if req.Items == nil {
			req.Items = []berth.Item{user("hi")}
		}
		_, err := modeltest.Collect(t, p, req)
		if berth.ErrorCode(err) != berth.CodeInvalid || !strings.Contains(param, errParam(err)) ||
			len(double.Requests()) != 0 {
			t.Errorf("%s: got %v", param, err)
		}
	}
	for _, file := range []berth.Content{{Type: "input_file", FileData: "data:application/zip;base64,UEsDBP8="},
		{Type: "input_file"}, {Type: "input_file", FileData: "data:text/plain,hi"},
		{Type: "input_image", ImageURL: "data:,"}} {
		p, _ := open(t, ok)
		if _, err := modeltest.Collect(t, p, &model.Request{Model: "claude-opus-4-8",
			Items: []berth.Item{message("user", file)}}); berth.ErrorCode(err) != berth.CodeInvalid {
			t.Errorf("%+v: got %v", file, err)
		}
	}
}
