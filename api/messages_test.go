package api_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// claude returns the vendor's client of a house.
func (h *house) claude() anthropic.Client {
	key := h.token
	if key == "" {
		key = "unused"
	}
	return anthropic.NewClient(option.WithBaseURL(h.url), option.WithAPIKey(key), option.WithMaxRetries(0))
}

// message sends a message request and checks the answer against the vendor's types.
func (h *house) message(fields string) object {
	h.t.Helper()
	o := h.call(200, "POST", "/v1/messages", `{"model":"played","max_tokens":99,`+fields+`}`)
	raw, err := json.Marshal(o)
	check(h.t, err)
	conforms[anthropic.BetaMessage](h.t, raw)
	return o
}

// streamed sends a streaming message request. It checks each event against the vendor's types and their order, and
// returns the message that the vendor's client accumulates.
func (h *house) streamed(fields string) (anthropic.BetaMessage, []string) {
	h.t.Helper()
	body := `{"model":"played","max_tokens":99,"stream":true,` + fields + `}`
	var whole anthropic.BetaMessage
	var kinds []string
	for _, ev := range h.rest(h.stream(h.t.Context(), "POST", "/v1/messages", body)) {
		kinds = append(kinds, ev.Type)
		var typed struct{ Type string }
		check(h.t, json.Unmarshal(ev.Data, &typed))
		if typed.Type != ev.Type {
			h.t.Errorf("the event %s has the type %s", ev.Type, typed.Type)
		}
		if ev.Type == "ping" || ev.Type == "error" {
			continue
		}
		var one anthropic.BetaRawMessageStreamEventUnion
		check(h.t, json.Unmarshal(ev.Data, &one))
		conformsEvent(h.t, ev.Type, ev.Data)
		check(h.t, whole.Accumulate(one))
	}
	return whole, kinds
}

func conformsEvent(t *testing.T, kind string, data []byte) {
	t.Helper()
	switch kind {
	case "message_start":
		conforms[anthropic.BetaRawMessageStartEvent](t, data)
	case "content_block_start":
		conforms[anthropic.BetaRawContentBlockStartEvent](t, data)
	case "content_block_delta":
		conforms[anthropic.BetaRawContentBlockDeltaEvent](t, data)
	case "content_block_stop":
		conforms[anthropic.BetaRawContentBlockStopEvent](t, data)
	case "message_delta":
		conforms[anthropic.BetaRawMessageDeltaEvent](t, data)
	case "message_stop":
		conforms[anthropic.BetaRawMessageStopEvent](t, data)
	default:
		t.Errorf("an event of the unknown type %s", kind)
	}
}

const hello = `"messages":[{"role":"user","content":"hi"}]`

func TestMessages(t *testing.T) {
	t.Parallel()
	thought := berth.NewItem(berth.Reasoning{Type: berth.ItemReasoning, Summary: []berth.Content{},
		EncryptedContent: "opaque"})
	const weather = `,"tools":[{"name":"weather","input_schema":{"type":"object"}}]`
	for _, tc := range []struct {
		name, fields string
		turn         []any
		content      string // of the answer
		stop         string
	}{
		{"text", "", turn(model.Text{Text: "Hel"}, model.Text{Text: "lo."}, stopped),
			`[{"type":"text","text":"Hello.","citations":null}]`, "end_turn"},
		{"nothing", "", turn(stopped), `[]`, "end_turn"},
		{"too long", "", turn(model.Text{Text: "and"}, cutShort), `[{"type":"text","text":"and","citations":null}]`,
			"max_tokens"},
		{"a stop sequence", `,"stop_sequences":["END"]`, turn(model.Text{Text: "and"}, model.Finish{
			Reason: model.FinishStop, Stop: "END", Usage: stopped.Usage}),
			`[{"type":"text","text":"and","citations":null}]`, "stop_sequence"},
		{"another stop sequence", `,"stop_sequences":["END"]`, turn(model.Text{Text: "and"}, model.Finish{
			Reason: model.FinishStop, Stop: "OF", Usage: stopped.Usage}),
			`[{"type":"text","text":"and","citations":null}]`, "end_turn"},
		{"filtered", "", turn(model.Text{Text: "and"}, filtered), `[{"type":"text","text":"and","citations":null}]`,
			"refusal"},
		{"declined", "", turn(model.Refusal{Text: "No."}, stopped), `[{"type":"text","text":"No.","citations":null}]`,
			"refusal"},
		{"calls", weather, turn(model.Text{Text: "See:"}, model.Call{ID: "call_a", Name: "weather", Arguments: `{"at":`},
			model.Call{Arguments: `1}`}, model.Call{Index: 1, ID: "call_b", Name: "weather"}, stopped),
			`[{"type":"text","text":"See:","citations":null},` +
				`{"type":"tool_use","id":"call_a","name":"weather","input":{"at":1},"caller":{"type":"direct"}},` +
				`{"type":"tool_use","id":"call_b","name":"weather","input":{},"caller":{"type":"direct"}}]`, "tool_use"},
		{"thoughts that nobody asked for", "", turn(model.Thought{Text: "Hm."}, model.Text{Text: "a"}, stopped),
			`[{"type":"text","text":"a","citations":null}]`, "end_turn"},
		{"thoughts", `,"thinking":{"type":"enabled","budget_tokens":2000}`, turn(model.Thought{Text: "Hm.", Summary: true},
			model.Text{Text: "a"}, stopped),
			`[{"type":"thinking","thinking":"Hm.","signature":"S"},{"type":"text","text":"a","citations":null}]`, "end_turn"},
		{"hidden thoughts", `,"thinking":{"type":"adaptive","display":"omitted"}`,
			turn(model.Thought{Text: "Hm.", Summary: true}, model.Text{Text: "a"}, stopped),
			`[{"type":"thinking","thinking":"","signature":"S"},{"type":"text","text":"a","citations":null}]`, "end_turn"},
		{"thoughts as updates", `,"thinking":{"type":"adaptive","display":"updates"}`,
			turn(model.Thought{Text: "Hm.", Summary: true}, model.Text{Text: "a"}, stopped),
			`[{"type":"thinking","thinking":"Hm.","signature":"S"},{"type":"text","text":"a","citations":null}]`, "end_turn"},
		{"redacted thoughts", `,"thinking":{"type":"adaptive"}`, turn(model.Item{Item: thought}, model.Text{Text: "a"},
			stopped),
			`[{"type":"redacted_thinking","data":"S"},{"type":"text","text":"a","citations":null}]`, "end_turn"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h, _ := playing(t, tc.turn)
			o := h.message(hello + tc.fields)
			var want any
			check(t, json.Unmarshal([]byte(tc.content), &want))
			if sequence, _ := o["stop_sequence"].(string); (sequence == "END") != (tc.stop == "stop_sequence") {
				t.Errorf("the stop sequence is %v", o["stop_sequence"])
			}
			if diff := cmp.Diff(want, unsigned(o["content"])); diff != "" || o["stop_reason"] != tc.stop {
				t.Errorf("%v (-want +got):\n%s", o["stop_reason"], diff)
			}
			usage := map[string]any{"input_tokens": 4.0, "cache_read_input_tokens": 3.0, "output_tokens": 2.0}
			for name, n := range usage {
				if got := o.at("usage", name); got != n {
					t.Errorf("%s is %v, want %v", name, got, n)
				}
			}
			m, kinds := h.streamed(hello + tc.fields)
			raw, err := json.Marshal(m.ToParam().Content)
			check(t, err)
			var again, got any
			check(t, json.Unmarshal(raw, &got))
			check(t, json.Unmarshal([]byte(withoutNulls(tc.content)), &again))
			if got == nil {
				got = []any{}
			}
			if (m.StopSequence == "END") != (tc.stop == "stop_sequence") {
				t.Errorf("streamed: the stop sequence is %q", m.StopSequence)
			}
			if diff := cmp.Diff(again, unsigned(got)); diff != "" || string(m.StopReason) != tc.stop {
				t.Errorf("streamed: %v (-want +got):\n%s", m.StopReason, diff)
			}
			if m.Usage.OutputTokens != 2 || kinds[0] != "message_start" || kinds[1] != "ping" ||
				kinds[len(kinds)-1] != "message_stop" {
				t.Errorf("streamed %d tokens in %v", m.Usage.OutputTokens, kinds)
			}
		})
	}
}

// withoutNulls removes what the vendor's client does not send back.
func withoutNulls(content string) string { return strings.ReplaceAll(content, `,"citations":null`, "") }

// unsigned masks the signatures in content.
func unsigned(content any) any {
	for _, b := range content.([]any) {
		b := b.(map[string]any)
		for _, name := range []string{"signature", "data"} {
			if s, ok := b[name].(string); ok && strings.HasPrefix(s, "berth.thought.1.") {
				b[name] = "S"
			}
		}
	}
	return content
}

// What a client sends back reaches the model as it came.
func TestMessagesHistory(t *testing.T) {
	t.Parallel()
	h, m := playing(t, turn(model.Thought{Text: "Hm.", Summary: true}, model.Call{ID: "call_a", Name: "f",
		Arguments: `{"x":1}`}, stopped))
	const fields = `"thinking":{"type":"adaptive"},"tools":[{"name":"f","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"hi"}`
	o := h.message(fields + `]`)
	content, err := json.Marshal(o["content"])
	check(t, err)
	image := `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}`
	h.message(fields + `,{"role":"assistant","content":` + string(content) + `},{"role":"user","content":[
		{"type":"tool_result","tool_use_id":"call_a","is_error":true,"content":[{"type":"text","text":"broken"},` + image + `]},
		{"type":"text","text":"Go on.","cache_control":{"type":"ephemeral"}}]}]`)
	got := m.asked[1].Items
	var kinds []string
	for _, it := range got {
		kinds = append(kinds, string(it.Type()))
	}
	if diff := cmp.Diff([]string{"message", "reasoning", "function_call", "function_call_output", "message"},
		kinds); diff != "" {
		t.Fatalf("items (-want +got):\n%s", diff)
	}
	if s := got[1].String(); !strings.Contains(s, `"text":"Hm."`) {
		t.Errorf("the thought is %s", s)
	}
	if s := got[3].String(); !strings.Contains(s, "The tool reported an error:") || !strings.Contains(s, "broken") ||
		!strings.Contains(s, "data:image/png;base64,aGk=") {
		t.Errorf("the result is %s", s)
	}
}

// The fields of a request reach the model.
func TestMessagesParameters(t *testing.T) {
	t.Parallel()
	h, m := playing(t, turn(stopped))
	h.message(`"system":[{"type":"text","text":"A"},{"type":"text","text":"B","cache_control":{"type":"ephemeral"}}],
		"stop_sequences":["x"],"temperature":0.5,"top_p":0.5,"top_k":4,"metadata":{"user_id":"u"},"service_tier":"standard_only",
		"output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}}},
		"tools":[{"type":"custom","name":"f","description":"F","input_schema":{"type":"object"},"eager_input_streaming":true},
			{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"str_replace_based_edit_tool"},
			{"type":"memory_20250818","name":"memory"},
			{"type":"computer_20251124","name":"computer","display_width_px":800,"display_height_px":600}],
		"tool_choice":{"type":"tool","name":"bash","disable_parallel_tool_use":true},
		"context_management":{"edits":[]},` + hello)
	got := m.asked[0]
	if got.Instructions != "A\n\nB" || got.MaxOutputTokens != 99 || *got.Temperature != 0.5 || *got.TopP != 0.5 ||
		!cmp.Equal(got.Sampling.Stop, []string{"x"}) || *got.Reasoning.Effort != "low" || got.ParallelToolCalls ||
		got.ToolChoice.Name != "bash" || !strings.Contains(string(got.Text.Format), `"strict":true`) {
		t.Errorf("got %+v", got)
	}
	var names []string
	for _, f := range got.Tools {
		names = append(names, f.Name)
	}
	if diff := cmp.Diff([]string{"f", "bash", "str_replace_based_edit_tool", "memory", "computer"}, names); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	if d := got.Tools[4].Description; !strings.Contains(d, "800x600") {
		t.Errorf("the computer is described as %s", d)
	}
}

// Errors have the vendor's form, with the place of the field.
func TestMessagesErrors(t *testing.T) {
	t.Parallel()
	h, _ := playing(t, turn(lasting))
	h.key("sk-mine", "proj_mine")
	const ok = `"model":"played","max_tokens":9,`
	for _, tc := range []struct {
		body    string
		status  int
		kind    string
		message string // its start
	}{
		{`{`, 400, "invalid_request_error", "We could not parse"},
		{`{` + hello + `,"max_tokens":9}`, 400, "invalid_request_error", "model: Field required"},
		{`{"model":"played",` + hello + `}`, 400, "invalid_request_error", "max_tokens: Field required"},
		{`{` + ok + hello + `,"nonsense":1}`, 400, "invalid_request_error", "nonsense: Extra inputs are not permitted"},
		{`{` + ok + `"messages":[]}`, 400, "invalid_request_error", "messages: "},
		{`{` + ok + `"messages":[{"role":"tool","content":""}]}`, 400, "invalid_request_error", "messages.0.role: "},
		{`{` + ok + `"messages":[{"role":"user","content":[{"type":"text"}]}]}`, 400, "invalid_request_error",
			"messages.0.content.0.text: Field required"},
		{`{` + ok + `"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}]}`, 400,
			"invalid_request_error", "messages.0.content.0: unexpected `tool_use_id`"},
		{`{` + ok + `"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":"x"}]}`,
			400, "invalid_request_error", "messages.1: `tool_use` ids were found without"},
		{`{` + ok + `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/tiff","data":"aGk="}}]}]}`,
			400, "invalid_request_error", "messages.0.content.0.source.media_type: "},
		{`{` + ok + `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"%%%"}}]}]}`,
			400, "invalid_request_error", "messages.0.content.0.source.data: "},
		{`{` + ok + `"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"a b"}}]}]}`,
			400, "invalid_request_error", "messages.0.content.0.source.data: "},
		{`{` + ok + hello + `,"tools":[{"type":"web_search_20250305","name":"web_search","allowed_domains":["a.example"],"blocked_domains":["b.example"]}]}`,
			400, "invalid_request_error", "tools.0.blocked_domains: Only one of"},
		{`{` + ok + hello + `,"tools":[{"name":"a b","input_schema":{}}]}`, 400, "invalid_request_error", "tools.0.name: "},
		{`{` + ok + hello + `,"tools":[{"type":"teleport_20250101","name":"x"}]}`, 400, "invalid_request_error",
			"tools.0.type: "},
		{`{` + ok + hello + `,"tool_choice":{"type":"any"}}`, 400, "invalid_request_error", "tool_choice: "},
		{`{` + ok + hello + `,"thinking":{"type":"enabled"}}`, 400, "invalid_request_error",
			"thinking.budget_tokens: Field required"},
		{`{` + ok + hello + `,"output_config":{"format":{"type":"json_schema","schema":{"type":"thing"}}}}`, 400,
			"invalid_request_error", "output_config.format.schema: "},
		{`{"model":"absent","max_tokens":9,` + hello + `}`, 404, "not_found_error", ""},
		{`{` + ok + `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"file","file_id":"file-1"}}]}]}`,
			404, "not_found_error", "messages.0.content.0: No such File object"},
		{`{` + ok + `"messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"container_upload","file_id":"file-1"}]}],"tools":[{"type":"code_execution_20250825","name":"code_execution"}]}`,
			404, "not_found_error", "messages.0.content.1: "},
		{`{` + ok + hello + `}`, 400, "invalid_request_error", "No."},
	} {
		o := h.call(tc.status, "POST", "/v1/messages", tc.body)
		message, _ := o.at("error", "message").(string)
		if o["type"] != "error" || o.at("error", "type") != tc.kind || !strings.HasPrefix(message, tc.message) ||
			!strings.HasPrefix(o["request_id"].(string), "req_") {
			t.Errorf("%s:\ngot  %v\nwant %s: %s", tc.body, o, tc.kind, tc.message)
		}
	}
	o := h.call(404, "POST", "/v1/messages", `{`+ok+hello+`,"thread":{"type":"continue","previous_message_id":"msg_1"}}`)
	if got := o.at("error", "details", "error_code"); got != "thread_not_found" {
		t.Errorf("a lost thread has the code %v", got)
	}
	client := h.claude()
	_, err := client.Messages.New(t.Context(), anthropic.MessageNewParams{Model: "played", MaxTokens: 9,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))}})
	failure, ok2 := errors.AsType[*anthropic.Error](err)
	if !ok2 || failure.StatusCode != 400 || failure.Type() != "invalid_request_error" || failure.RequestID == "" {
		t.Errorf("the client got %v", err)
	}
	h.token = "sk-other"
	if o := h.call(401, "POST", "/v1/messages", `{`+ok+hello+`}`); o.at("error", "type") != "authentication_error" {
		t.Errorf("got %v", o)
	}
}

// A failure after the start of a stream is its last event; one before it has a status.
func TestMessagesStreamFailure(t *testing.T) {
	t.Parallel()
	h, _ := playing(t, turn(model.Text{Text: "a"}, lasting))
	_, kinds := h.streamed(hello)
	if diff := cmp.Diff([]string{"message_start", "ping", "content_block_start", "content_block_delta",
		"content_block_stop", "error"}, kinds); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	h, _ = playing(t, turn(lasting))
	o := h.call(400, "POST", "/v1/messages", `{"model":"played","max_tokens":9,"stream":true,`+hello+`}`)
	if o.at("error", "message") != "No." {
		t.Errorf("got %v", o)
	}
}

// The vendor's client counts tokens and lists models, with its key in x-api-key.
func TestMessagesClient(t *testing.T) {
	t.Parallel()
	h, _ := playing(t, turn(model.Text{Text: "a"}, stopped))
	h.key("sk-mine", "proj_mine")
	client := h.claude()
	n, err := client.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{Model: "played",
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))}})
	if err != nil || n.InputTokens < 1 {
		t.Errorf("counted %v, %v", n, err)
	}
	models, err := client.Models.List(t.Context(), anthropic.ModelListParams{Limit: anthropic.Int(1)})
	check(t, err)
	if len(models.Data) != 1 || models.Data[0].ID == "" || models.FirstID != models.Data[0].ID {
		t.Errorf("listed %s", models.RawJSON())
	}
	conforms[anthropic.ModelInfo](t, []byte(models.Data[0].RawJSON()))
	m, err := client.Models.Get(t.Context(), "played", anthropic.ModelGetParams{})
	if err != nil || m.ID != "played" {
		t.Errorf("got %v, %v", m, err)
	}
	if _, err := client.Models.Get(t.Context(), "absent", anthropic.ModelGetParams{}); err == nil ||
		!strings.Contains(err.Error(), "not_found_error") {
		t.Errorf("got %v", err)
	}
	beta, err := client.Beta.Messages.New(t.Context(), anthropic.BetaMessageNewParams{Model: "played", MaxTokens: 9,
		Betas:    []anthropic.AnthropicBeta{"unknown-2099-01-01"},
		Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock("hi"))}})
	if err != nil || len(beta.Content) != 1 || beta.Content[0].Text != "a" {
		t.Errorf("got %v, %v", beta, err)
	}
	resp := h.send(t.Context(), http.MethodGet, "/v1/models", nil)
	raw, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasPrefix(string(raw), `{"object":"list"`) {
		t.Errorf("other clients list %s, %v", raw, err)
	}
}
