package anthropic

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
	"github.com/berth-run/berth/model/upstream"
)

// deltas decodes an answer and returns one line for each delta.
func deltas(t *testing.T, in io.Reader) (lines []string, err error) {
	t.Helper()
	a := newAnswer(&model.Request{Model: "claude-opus-4-8"}, &request{}, slog.New(slog.DiscardHandler))
	for d, e := range upstream.Read(in, a, a.log) {
		if err != nil {
			t.Fatal("something follows an error")
		}
		if err = e; e != nil {
			continue
		}
		switch d := d.(type) {
		case model.Text:
			lines = append(lines, "text "+d.Text)
		case model.Thought:
			lines = append(lines, "thought "+d.Text)
		case model.Refusal:
			lines = append(lines, "refusal "+d.Text)
		case model.Call:
			lines = append(lines, fmt.Sprintf("%d %s %s %s", d.Index, d.ID, d.Name, d.Arguments))
		case model.Item:
			var r berth.Reasoning
			var th thought
			if d.Item.Decode(&r) != nil || !dialogue.Unseal("anthropic", "claude-opus-4-8", r.EncryptedContent, &th) {
				t.Fatalf("an item without a seal: %s", d.Item.Raw())
			}
			lines = append(lines, fmt.Sprintf("item %v %+v", d.Ends, th))
		case model.Finish:
			lines = append(lines, fmt.Sprintf("finish %s %+v", d.Reason, d.Usage))
		}
	}
	return lines, err
}

// stream returns a stream of events, named by their types.
func stream(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		kind, _, _ := strings.Cut(strings.TrimPrefix(e, `{"type":"`), `"`)
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", kind, e)
	}
	return b.String()
}

const (
	start = `{"type":"message_start","message":{"id":"msg_1","model":"claude-opus-4-8","usage":{"input_tokens":10,"cache_read_input_tokens":20,"cache_creation_input_tokens":5,"output_tokens":1}}}`
	stop  = `{"type":"message_stop"}`
	used  = `,"usage":{"output_tokens":7,"output_tokens_details":{"thinking_tokens":3}}`
	total = `{InputTokens:35 InputTokenDetails:{CacheWriteTokens:5 CachedTokens:20} OutputTokens:7 OutputTokenDetails:{ReasoningTokens:3} TotalTokens:42}`
)

func end(reason string) string {
	return `{"type":"message_delta","delta":{"stop_reason":"` + reason + `"}` + used + `}`
}

func text(s string) string {
	return `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"` + s + `"}}`
}

func TestStreams(t *testing.T) {
	const begin, over = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_stop","index":0}`
	tests := []struct {
		name string
		in   []string
		want []string
	}{
		{"text", []string{start, `{"type":"ping"}`, begin, text("a"), over, end("end_turn"), stop},
			[]string{"text a", "finish stop " + total}},
		{"a stop sequence", []string{start, begin, text("a"), over, end("stop_sequence"), stop},
			[]string{"text a", "finish stop " + total}},
		{"a pause", []string{start, begin, text("a"), over, end("pause_turn"), stop},
			[]string{"text a", "finish stop " + total}},
		{"the output limit", []string{start, begin, text("a"), over, end("max_tokens"), stop},
			[]string{"text a", "finish length " + total}},
		{"the window", []string{start, begin, text("a"), over, end("model_context_window_exceeded"), stop},
			[]string{"text a", "finish length " + total}},
		{"refused after text", []string{start, begin, text("a"), over, end("refusal"), stop},
			[]string{"text a", "finish content_filter " + total}},
		{"refused", []string{start, end("refusal"), stop},
			[]string{"refusal The model's provider declined to answer this.", "finish stop " + total}},
		{"refused with a reason",
			[]string{start,
				`{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"bio","explanation":"No."}}` + used + `}`,
				stop}, []string{"refusal No.", "finish stop " + total}},
		{"null details",
			[]string{start, `{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":null}` + used +
				`}`, stop}, []string{"refusal The model's provider declined to answer this.", "finish stop " + total}},
		{"a thought in pieces",
			[]string{start,
				`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"H"}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s1"}}`, over,
				end("end_turn"), stop},
			[]string{"thought H", "thought m", "item true {Of:msg_1 Thinking:Hm Signature:s1 Data:}", "finish stop " +
				total}},
		{"an omitted thought",
			[]string{start,
				`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":"s1"}}`,
				over, end("end_turn"), stop},
			[]string{"item false {Of:msg_1 Thinking: Signature:s1 Data:}", "finish stop " + total}},
		{"a redacted thought",
			[]string{start,
				`{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"xx"}}`,
				over, end("end_turn"), stop},
			[]string{"item false {Of:msg_1 Thinking: Signature: Data:xx}", "finish stop " + total}},
		{"a compatible server's thought",
			[]string{start,
				`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"Hm"}}`, over,
				end("end_turn"), stop}, []string{"thought Hm", "finish stop " + total}},
		{"interleaved calls",
			[]string{start,
				`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{}}}`,
				`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t2","name":"g","input":{}}}`,
				`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"2"}}`,
				`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}`,
				`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"1"}}`,
				end("tool_use"), stop}, []string{"0 t1 f ", "1 t2 g ", "1   2", "0   1", "finish stop " + total}},
		{"a compatible server's call",
			[]string{start,
				`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1","name":"f","input":{"a": 12345678901234567890}}}`,
				end("tool_use"), stop},
			[]string{`0 t1 f {"a": 12345678901234567890}`, "finish stop " + total}},
		{"unknown types",
			[]string{start, `{"type":"weather"}`,
				`{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"web_search"}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta"}}`, over,
				`{"type":"content_block_delta","index":9,"delta":{"type":"text_delta","text":"lost"}}`, end("end_turn"),
				stop}, []string{"finish stop " + total}},
		{"no end mark", []string{start, begin, text("a"), end("end_turn")}, []string{"text a", "finish stop " + total}},
		{"fields of other types", []string{`{"type":"message_start","message":{"id":7,"usage":[]}}`, begin, text("a"),
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":"much"}`, stop},
			[]string{"text a",
				"finish stop {InputTokens:0 InputTokenDetails:{CacheWriteTokens:0 CachedTokens:0} OutputTokens:0 OutputTokenDetails:{ReasoningTokens:0} TotalTokens:0}"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for how, in := range map[string]io.Reader{"at once": strings.NewReader(stream(tt.in...)),
				"byte by byte": iotest.OneByteReader(strings.NewReader(stream(tt.in...)))} {
				got, err := deltas(t, in)
				if err != nil {
					t.Errorf("%s: %v", how, err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
	cut := stream(start, begin, text("a"), end("end_turn")) + "data: {\"ty"
	if got, err := deltas(t, strings.NewReader(cut)); err != nil || len(got) != 2 {
		t.Errorf("cut after the end: got %v, %v", got, err)
	}
	for _, broken := range []string{"", stream(start), stream(start, text("a")), "data: x\n\n", stream(start) +
		"data: {\"type\"",
		stream(start, `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1"}}`)} {
		if got, err := deltas(t, strings.NewReader(broken)); err == nil {
			t.Errorf("%q: got %v, want an error", broken, got)
		}
	}
}

// All types of errors that Anthropic documents, as a status and within the stream.
func TestErrors(t *testing.T) {
	tests := []struct {
		status        int
		kind, message string
		want          berth.Error // without Err
	}{
		{400, "invalid_request_error", "messages.1.content: too odd",
			berth.Error{Code: berth.CodeInvalid, Message: "messages.1.content: too odd", Param: "input"}},
		{400, "invalid_request_error", "`temperature` is deprecated for this model.",
			berth.Error{Code: berth.CodeInvalid, Message: "`temperature` is deprecated for this model.",
				Param: "temperature"}},
		{400, "invalid_request_error", "max_tokens: 200000 > 64000",
			berth.Error{Code: berth.CodeInvalid, Message: "max_tokens: 200000 > 64000", Param: "max_output_tokens"}},
		{400, "invalid_request_error", "output_config.format.schema: no",
			berth.Error{Code: berth.CodeInvalid, Message: "output_config.format.schema: no", Param: "text.format"}},
		{400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum",
			berth.Error{Code: berth.CodeInvalid, Message: "prompt is too long: 210000 tokens > 200000 maximum",
				Param: "input", Wire: "context_length_exceeded"}},
		{400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.",
			berth.Error{Code: berth.CodeUnavailable, Message: "The model's server has no quota left.",
				Wire: "upstream_refused"}},
		{401, "authentication_error", "invalid x-api-key",
			berth.Error{Code: berth.CodeUnavailable,
				Message: "The model's server refused the API key configured for it (401).", Wire: "upstream_refused"}},
		{402, "billing_error", "pay",
			berth.Error{Code: berth.CodeUnavailable, Message: "The model's server requires payment (402).",
				Wire: "upstream_refused"}},
		{403, "permission_error", "no",
			berth.Error{Code: berth.CodeUnavailable,
				Message: "The model's server refused the API key configured for it (403).", Wire: "upstream_refused"}},
		{404, "not_found_error", "model: claude-9",
			berth.Error{Code: berth.CodeNotFound,
				Message: "The model `claude-9` does not exist or you do not have access to it.", Param: "model",
				Wire: "model_not_found"}},
		{413, "request_too_large", "Request exceeds the maximum size",
			berth.Error{Code: berth.CodeInvalid, Message: "Request exceeds the maximum size"}},
		{429, "rate_limit_error", "Slow down.", berth.Error{Code: berth.CodeRateLimited, Message: "Slow down."}},
		{500, "api_error", "oops", berth.Error{Code: berth.CodeUpstream, Message: "The model's server failed (500)."}},
		{504, "timeout_error", "late",
			berth.Error{Code: berth.CodeUpstream, Message: "The model's server failed (504)."}},
		{529, "overloaded_error", "Overloaded",
			berth.Error{Code: berth.CodeUpstream, Message: "The model's server failed (529)."}},
	}
	up, err := upstream.New(upstream.Options{BaseURL: BaseURL})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		body := fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q},"request_id":"req_1"}`, tt.kind,
			tt.message)
		for where, status := range map[string]int{"as a status": tt.status, "within the stream": 0} {
			got, ok := errors.AsType[*berth.Error](up.Refused(&upstream.Refusal{Status: status, Body: []byte(body)},
				explain, "claude-9"))
			if !ok {
				t.Fatalf("%s: not a *berth.Error", tt.message)
			}
			shown := *got
			shown.Err = nil
			if diff := cmp.Diff(tt.want, shown); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", tt.message, where, diff)
			}
		}
	}
	if _, err := deltas(t,
		strings.NewReader(stream(start, text("a"),
			`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`))); err == nil {
		t.Error("an error within the stream was ignored")
	}
}

// The deltas of any input satisfy model.Provider.
func FuzzAnswer(f *testing.F) {
	f.Add(stream(start,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"H","signature":"s"}}`,
		`{"type":"content_block_stop","index":0}`, end("refusal"), stop))
	f.Add(stream(start,
		`{"type":"content_block_start","index":-1,"content_block":{"type":"tool_use","id":"","name":"f","input":[]}}`,
		`{"type":"content_block_delta","index":-1,"delta":{"type":"input_json_delta","partial_json":"{"}}`,
		end("tool_use"), stop))
	f.Add(stream(`{"type":"error","error":{"type":"overloaded_error"}}`))
	f.Fuzz(func(t *testing.T, in string) {
		a := newAnswer(&model.Request{Model: "m"}, &request{}, slog.New(slog.DiscardHandler))
		over, ids := false, map[string]bool{}
		for d, err := range upstream.Read(strings.NewReader(in), a, a.log) {
			if over {
				t.Fatalf("after the end: %#v, %v", d, err)
			}
			over = err != nil
			if r, ok := errors.AsType[*upstream.Refusal](err); ok {
				_ = explain(r)
			}
			switch d := d.(type) {
			case model.Finish:
				over = true
			case model.Call:
				first := d.Index == len(ids)
				if d.Index < 0 || d.Index > len(ids) || first != (d.Name != "") || first != (d.ID != "") || ids[d.ID] {
					t.Fatalf("after %d calls: %#v", len(ids), d)
				}
				if first {
					ids[d.ID] = true
				}
			}
		}
		if !over {
			t.Fatal("no end")
		}
	})
}

func TestGenerations(t *testing.T) {
	for name, want := range map[string]generation{
		"claude-3-7-sonnet-20250219": {true, "sonnet", 3, 7}, "claude-3-haiku-20240307": {true, "haiku", 3, 0},
		"claude-sonnet-4-20250514": {true, "sonnet", 4, 0},
		"claude-opus-4-5-20251101": {true, "opus", 4, 5}, "us.anthropic.claude-sonnet-4-5-20250929-v1:0": {true,
			"sonnet", 4, 5}, "anthropic/claude-sonnet-4.6": {true, "sonnet", 4, 6},
		"claude-opus-5": {true, "opus", 5, 0}, "claude-opus-5-20260901": {true, "opus", 5, 0},
		"claude-fable-5-1": {true, "fable", 5, 1}, "claude-haiku-4-5@20251001": {true, "haiku", 4, 5},
		"claude-opus-latest": {true, "opus", 0, 0}, "claude-mythos-preview": {true, "mythos", 0, 0}, "gpt-5": {},
		"kimi-k2-5": {},
	} {
		if got := generationOf(name); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	for name, want := range map[string]string{"claude-opus-4-5-20251101": "claude-opus-4-5",
		"claude-haiku-4-5@20251001": "claude-haiku-4-5", "claude-opus-5-5": "claude-opus-5-5", "double-1": "double-1"} {
		if got := family(name); got != want {
			t.Errorf("%s: got family %s, want %s", name, got, want)
		}
	}
}
