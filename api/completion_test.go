package api_test

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A playedModel plays one list of deltas for each turn, which may contain an error, and
// records the requests. After the last turn, it starts again with the first.
type playedModel struct {
	turns [][]any

	mu    sync.Mutex
	asked []*model.Request
}

func (m *playedModel) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	m.mu.Lock()
	turn := m.turns[len(m.asked)%len(m.turns)]
	m.asked = append(m.asked, req)
	m.mu.Unlock()
	return func(yield func(model.Delta, error) bool) {
		for _, d := range turn {
			if err, ok := d.(error); ok {
				yield(nil, err)
				return
			}
			if answer, ok := d.(func(*model.Request) model.Delta); ok {
				d = answer(req)
			}
			if !yield(d.(model.Delta), nil) {
				return
			}
		}
	}
}

// play replaces the turns.
func (m *playedModel) play(turns [][]any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turns, m.asked = turns, nil
}

// playing starts a server with the model "played".
func playing(t *testing.T, turns ...[]any) (*house, *playedModel) {
	m := &playedModel{turns: turns}
	return newHouse(t, nil, model.Rule{Match: "played", Provider: m}), m
}

func turn(deltas ...any) []any { return deltas }

var (
	stopped = model.Finish{Reason: model.FinishStop, Usage: berth.Usage{InputTokens: 7, OutputTokens: 2, TotalTokens: 9,
		InputTokenDetails:  berth.InputTokenDetails{CachedTokens: 3},
		OutputTokenDetails: berth.OutputTokenDetails{ReasoningTokens: 1}}}
	// of what stopped used
	half      = model.Finish{Usage: berth.Usage{InputTokens: 3, OutputTokens: 1, TotalTokens: 4}}
	otherHalf = model.Finish{Usage: berth.Usage{InputTokens: 4, OutputTokens: 1, TotalTokens: 5,
		InputTokenDetails:  berth.InputTokenDetails{CachedTokens: 3},
		OutputTokenDetails: berth.OutputTokenDetails{ReasoningTokens: 1}}}
	cutShort = model.Finish{Reason: model.FinishLength, Usage: stopped.Usage}
	filtered = model.Finish{Reason: model.FinishContentFilter, Usage: stopped.Usage}

	passing = berth.Errorf(berth.CodeUpstream, "The model's server is away.")
	lasting = berth.Errorf(berth.CodeInvalid, "No.")
)

const (
	asking   = `"model":"played","messages":[{"role":"user","content":"hi, as JSON if asked for"}]`
	weather  = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}},{"type":"custom","custom":{"name":"poem"}}]`
	usageEnd = `"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":3,"audio_tokens":0},` +
		`"completion_tokens_details":{"reasoning_tokens":1,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}`
)

var masks = []struct {
	find *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`"id":"chatcmpl-[0-9a-f]{48}"`), `"id":"C"`},
	{regexp.MustCompile(`"created":\d{10}`), `"created":1`},
	{regexp.MustCompile(`"system_fingerprint":"fp_[0-9a-f]{10}"`), `"system_fingerprint":"F"`},
	{regexp.MustCompile(`"container_id":"cntr_[0-9a-f]{48}"`), `"container_id":"B"`},
	{regexp.MustCompile(`req_[0-9a-f]{48}`), `R`},
}

// masked replaces what differs from run to run.
func masked(s string) string {
	for _, m := range masks {
		s = m.find.ReplaceAllString(s, m.with)
	}
	return s
}

// complete requests a completion and returns the status and the masked body.
func (h *house) complete(fields string) (int, string) {
	h.t.Helper()
	resp := h.send(h.t.Context(), "POST", "/v1/chat/completions", "{"+fields+"}")
	raw, err := io.ReadAll(resp.Body)
	check(h.t, err)
	return resp.StatusCode, masked(string(raw))
}

var answers = []struct {
	name   string
	turns  [][]any
	fields string
	stream string // the choices of its chunks, one a line; or the error
	whole  string // the choices of the same request without stream
}{
	{
		name:  "words",
		turns: [][]any{turn(model.Text{Text: "Hel"}, model.Text{Text: "lo."}, stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"Hel"},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"lo."},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"Hello.","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}`,
	},
	{
		name:  "nothing",
		turns: [][]any{turn(stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}`,
	},
	{
		name:  "a refusal",
		turns: [][]any{turn(model.Refusal{Text: "I'd rather "}, model.Refusal{Text: "not."}, stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":null,"refusal":""},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"refusal":"I'd rather "},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"refusal":"not."},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":null,"refusal":"I'd rather not.","annotations":[]},"logprobs":null,"finish_reason":"stop"}`,
	},
	{
		name:  "too long",
		turns: [][]any{turn(model.Text{Text: "and"}, cutShort)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"and"},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"and","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"length"}`,
	},
	{
		name:  "filtered",
		turns: [][]any{turn(filtered)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"content_filter"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"content_filter"}`,
	},
	{
		name: "a call", fields: weather,
		turns: [][]any{turn(model.Call{ID: "call_a", Name: "weather"}, model.Call{Arguments: `{"at":`},
			model.Call{Arguments: `1}`}, stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"weather","arguments":""}}],"refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"at\":"}}]},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_a","type":"function","function":{"name":"weather","arguments":"{\"at\":1}"}}],"refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"tool_calls"}`,
	},
	{
		name: "words and calls", fields: weather,
		turns: [][]any{turn(model.Text{Text: "See:"}, model.Call{ID: "call_a", Name: "weather", Arguments: `{}`},
			model.Call{Index: 1, ID: "call_b", Name: "poem", Arguments: `{"input":"ro`},
			model.Call{Index: 1, Arguments: `se"}`}, stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"See:"},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"weather","arguments":""}}]},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"custom","custom":{"name":"poem","input":""}}]},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"tool_calls":[{"index":1,"custom":{"input":"ro"}}]},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"tool_calls":[{"index":1,"custom":{"input":"se"}}]},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"See:","tool_calls":[{"id":"call_a","type":"function","function":{"name":"weather","arguments":"{}"}},{"id":"call_b","type":"custom","custom":{"name":"poem","input":"rose"}}],"refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"tool_calls"}`,
	},
	{
		name: "a forced call", fields: weather + `,"tool_choice":{"type":"function","function":{"name":"weather"}}`,
		turns: [][]any{turn(model.Call{ID: "call_a", Name: "weather", Arguments: "{}"}, stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"weather","arguments":""}}],"refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_a","type":"function","function":{"name":"weather","arguments":"{}"}}],"refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}`,
	},
	{
		name: "a call in the older form", fields: `"functions":[{"name":"weather"}]`,
		turns: [][]any{turn(model.Call{ID: "call_a", Name: "weather", Arguments: "{}"},
			model.Call{Index: 1, ID: "call_b", Name: "weather", Arguments: "{}"}, stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":null,"function_call":{"name":"weather","arguments":""},"refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"function_call":{"arguments":"{}"}},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"function_call"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":null,"function_call":{"name":"weather","arguments":"{}"},"refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"function_call"}`,
	},
	{
		name: "probabilities", fields: `"logprobs":true`,
		turns: [][]any{turn(model.Text{Text: "a",
			Logprobs: []json.RawMessage{json.RawMessage(`{"token":"a","logprob":-1,"bytes":[97],"top_logprobs":[]}`)}},
			stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-1,"bytes":[97],"top_logprobs":[]}],"refusal":null},"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"a","refusal":null,"annotations":[]},"logprobs":{"content":[{"token":"a","logprob":-1,"bytes":[97],"top_logprobs":[]}],"refusal":null},"finish_reason":"stop"}`,
	},
	{
		name: "thoughts are left out",
		turns: [][]any{turn(model.Thought{Text: "Hm."}, model.Text{Text: "a"}, model.Thought{Text: "Hm."},
			model.Text{Text: "b"}, stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"b"},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"ab","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}`,
	},
	{
		name: "reasoning with include_reasoning", fields: `"include_reasoning":true`,
		turns: [][]any{turn(model.Thought{Text: "Hm."}, model.Text{Text: "a"}, stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"reasoning_content":"Hm."},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"a","reasoning_content":"Hm.","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}`,
	},
	{
		name: "citations of a message that came whole",
		turns: [][]any{turn(model.Item{Item: berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "assistant",
			Content: []berth.Content{
				{Type: "output_text", Text: "ü. "}, {Type: "output_text", Text: "So.", Annotations: []json.RawMessage{
					json.RawMessage(
						`{"type":"url_citation","start_index":0,"end_index":2,"url":"https://x.example/","title":"X"}`),
					json.RawMessage(`{"type":"file_path"}`)}},
			}})}, stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"ü. "},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"So."},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"annotations":[{"type":"url_citation","url_citation":{"end_index":5,"start_index":3,"title":"X","url":"https://x.example/"}}]},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"ü. So.","refusal":null,"annotations":[{"type":"url_citation","url_citation":{"end_index":5,"start_index":3,"title":"X","url":"https://x.example/"}}]},"logprobs":null,"finish_reason":"stop"}`,
	},
	{
		name: "a hosted shell", fields: `"tools":[{"type":"shell"}]`,
		turns: [][]any{turn(model.Text{Text: "Let me see."},
			model.Call{ID: "call_a", Name: "shell", Arguments: `{"commands":["echo 41"]}`}, half),
			turn(model.Text{Text: "It is "}, model.Text{Text: "41."}, otherHalf)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"Let me see."},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"\n\nIt is "},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"41."},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","berth":{"container_id":"B"}}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"Let me see.\n\nIt is 41.","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop","berth":{"container_id":"B"}}`,
	},
	{
		name:   "JSON after a hosted shell",
		fields: `"tools":[{"type":"shell","environment":{"type":"container_auto"}}],"response_format":{"type":"json_object"}`,
		turns: [][]any{turn(model.Text{Text: "Let me see."},
			model.Call{ID: "call_a", Name: "shell", Arguments: `{"commands":["echo 41"]}`}, half),
			turn(model.Text{Text: `{"n":`}, model.Text{Text: `41}`}, otherHalf)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"{\"n\":41}"},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","berth":{"container_id":"B"}}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"{\"n\":41}","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop","berth":{"container_id":"B"}}`,
	},
	{
		name: "a comment before the answer",
		turns: [][]any{turn(model.Text{Text: "Let me think.", Phase: "commentary"},
			model.Text{Text: "41", Phase: "final_answer"}, stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"Let me think."},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"\n\n41"},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"Let me think.\n\n41","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}`,
	},
	{
		name:  "repeated before any text",
		turns: [][]any{turn(passing), turn(model.Text{Text: "a"}, stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"a","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}`,
	},
	{
		name:  "repeated after some text",
		turns: [][]any{turn(model.Text{Text: "b"}, passing), turn(model.Text{Text: "a"}, stopped)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"b"},"logprobs":null,"finish_reason":null}
{"error":{"message":"The upstream disconnected in the middle of its answer. A chat stream cannot be restarted; send the request again.","type":"server_error","param":null,"code":"upstream_error"}}`,
		whole: `{"index":0,"message":{"role":"assistant","content":"a","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}`,
	},
	{
		name:  "failed in the middle",
		turns: [][]any{turn(model.Text{Text: "b"}, lasting)},
		stream: `{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}
{"index":0,"delta":{"content":"b"},"logprobs":null,"finish_reason":null}
{"error":{"message":"No.","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}`,
		whole: `400 {"error":{"message":"No.","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}`,
	},
	{
		name: "failed before a word",
		turns: [][]any{turn(&berth.Error{Code: berth.CodeInvalid, Wire: "unsupported_parameter", Param: "text.format",
			Message: "No."})},
		stream: `400 {"error":{"message":"No.","type":"invalid_request_error","param":"response_format","code":"unsupported_parameter"}}`,
		whole:  `400 {"error":{"message":"No.","type":"invalid_request_error","param":"response_format","code":"unsupported_parameter"}}`,
	},
}

// The output of a model becomes these chunks, and this message without stream.
func TestCompletionAnswers(t *testing.T) {
	t.Parallel()
	h, m := playing(t)
	for _, tt := range answers {
		t.Run(tt.name, func(t *testing.T) {
			m.play(tt.turns)
			fields := asking
			if tt.fields != "" {
				fields += "," + tt.fields
			}
			status, body := h.complete(fields)
			got := body
			if status == 200 {
				var ok bool
				got, ok = between(body, `{"id":"C","object":"chat.completion","created":1,"model":"played","choices":[`,
					`],`+usageEnd+`,"service_tier":"default","system_fingerprint":"F"}`)
				if !ok {
					t.Fatalf("the completion's frame: %s", body)
				}
			} else {
				got = "400 " + body
			}
			if diff := cmp.Diff(tt.whole, got); diff != "" {
				t.Errorf("whole (-want +got):\n%s", diff)
			}

			m.play(tt.turns)
			status, body = h.complete(fields + `,"stream":true,"stream_options":{"include_obfuscation":false}`)
			if status == 200 {
				got = choicesOf(t, body)
			} else {
				got = "400 " + body
			}
			if diff := cmp.Diff(tt.stream, got); diff != "" {
				t.Errorf("stream (-want +got):\n%s", diff)
			}
		})
	}
}

func between(s, prefix, suffix string) (string, bool) {
	s, begins := strings.CutPrefix(s, prefix)
	s, ends := strings.CutSuffix(s, suffix)
	return s, begins && ends
}

// choicesOf returns the choices of a stream's chunks, one a line.
func choicesOf(t *testing.T, stream string) string {
	t.Helper()
	var lines []string
	frames := strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n")
	for i, frame := range frames {
		data, isData := strings.CutPrefix(frame, "data: ")
		choice, isChunk := between(data,
			`{"id":"C","object":"chat.completion.chunk","created":1,"model":"played","service_tier":"default","system_fingerprint":"F","choices":[`,
			`]}`)
		last := i == len(frames)-1
		switch {
		case isChunk && !last:
			lines = append(lines, choice)
		case last && strings.HasPrefix(data, `{"error"`):
			lines = append(lines, data)
		case !isData || !last || data != "[DONE]":
			t.Errorf("frame %d of %d is not as expected: %s", i, len(frames), frame)
		}
	}
	return strings.Join(lines, "\n")
}
