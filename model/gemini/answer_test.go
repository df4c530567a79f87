package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
	"github.com/berth-run/berth/model/upstream"
)

// deltas decodes an answer and returns one line for each delta.
func deltas(t *testing.T, in io.Reader) (lines []string, err error) {
	t.Helper()
	a := newAnswer(&model.Request{Model: "gemini-3.5-flash", ParallelToolCalls: true}, slog.New(slog.DiscardHandler))
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
			if strings.HasPrefix(d.ID, berth.PrefixCall) {
				d.ID = "new"
			}
			lines = append(lines, fmt.Sprintf("%d %s %s %s", d.Index, d.ID, d.Name, d.Arguments))
		case model.Item:
			var r berth.Reasoning
			var s signature
			if d.Item.Decode(&r) != nil || !dialogue.Unseal("gemini", "gemini-3.5-flash", r.EncryptedContent, &s) {
				t.Fatalf("an item without a seal: %s", d.Item.Raw())
			}
			lines = append(lines, fmt.Sprintf("item %v {Of:%s Place:%s Thought:%s Signature:%s}%s", d.Ends, s.Of,
				s.Place, s.Thought, s.Signature, s.Args))
		case model.Finish:
			lines = append(lines, fmt.Sprintf("finish %s", d.Reason))
		}
	}
	return lines, err
}

// stream returns a stream of candidates: parts, "|", other fields.
func stream(candidates ...string) string {
	var b strings.Builder
	for _, c := range candidates {
		parts, rest, _ := strings.Cut(c, "|")
		if rest != "" {
			rest = "," + rest
		}
		fmt.Fprintf(&b,
			"data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[%s]}%s}],\"responseId\":\"r1\"}\r\n\r\n",
			parts, rest)
	}
	return b.String()
}

const end = `|"finishReason":"STOP"`

func TestStreams(t *testing.T) {
	reason := func(r string) string { return `|"finishReason":"` + r + `"` }
	tests := []struct {
		name, in string
		want     []string
	}{
		{"text", stream(`{"text":"a"}`, `{"text":"b"}`+end), []string{"text a", "text b", "finish stop"}},
		{"several parts", stream(`{"text":"a","thought":true},{"text":"b"},{"functionCall":{"name":"f","args":{}}}` +
			end), []string{"thought a", "text b", "0 new f {}", "finish stop"}},
		{"a signed call", stream(`{"text":"H","thought":true}`, `{"text":"m","thought":true}`,
			`{"functionCall":{"id":"c1","name":"f","args":{"n": 12345678901234567890}},"thoughtSignature":"s1"}`,
			`{"functionCall":{"name":"g"}}`+end),
			[]string{"thought H", "thought m", "item true {Of:r1 Place:call Thought: Signature:s1}" +
				`{"n":12345678901234567890}`, `0 c1 f {"n": 12345678901234567890}`, "1 new g {}", "finish stop"}},
		{"a signed call after text", stream(`{"text":"H","thought":true}`, `{"text":"a"}`,
			`{"functionCall":{"id":"c1","name":"f","args":{}},"thoughtSignature":"s1"}`+end),
			[]string{"thought H", "text a", "item false {Of:r1 Place:call Thought: Signature:s1}{}", "0 c1 f {}",
				"finish stop"}},
		{"signed text", stream(`{"text":"a"}`, `{"text":"","thoughtSignature":"s1"}`+end),
			[]string{"text a", "item false {Of:r1 Place:text Thought: Signature:s1}", "finish stop"}},
		{"signed text in one part", stream(`{"text":"a","thoughtSignature":"s1"}` + end),
			[]string{"text a", "item false {Of:r1 Place:text Thought: Signature:s1}", "finish stop"}},
		{"a signed thought", stream(`{"text":"Hm","thought":true,"thoughtSignature":"s1"}` + end),
			[]string{"thought Hm", "item true {Of:r1 Place:thought Thought:Hm Signature:s1}", "finish stop"}},
		{"the output limit", stream(`{"text":"a"}` + reason("MAX_TOKENS")), []string{"text a", "finish length"}},
		{"a filter after text", stream(`{"text":"a"}` + reason("SAFETY")), []string{"text a", "finish content_filter"}},
		{"a filter", stream(reason("RECITATION")),
			[]string{"refusal The model's provider declined to answer this (RECITATION).", "finish stop"}},
		{"a filter with a message", stream(`|"finishReason":"SPII","finishMessage":"No."`),
			[]string{"refusal No.", "finish stop"}},
		{"a blocked request",
			`data: {"promptFeedback":{"blockReason":"OTHER"},"usageMetadata":{"promptTokenCount":3}}` + "\n\n",
			[]string{"refusal The model's provider declined to answer this (OTHER).", "finish stop"}},
		{"another candidate", stream(`{"text":"b"}|"index":1`, end), []string{"finish stop"}},
		{"a reason and then usage", stream(`{"text":"a"}`+end) + `data: {"usageMetadata":{"promptTokenCount":3}}` +
			"\n\n", []string{"text a", "finish stop"}},
		{"parts of other kinds",
			stream(`{"inlineData":{"mimeType":"image/png","data":"aGk="}},{"executableCode":{}},{"functionCall":{"args":{}}}`+end,
				``), []string{"finish stop"}},
		{"null", `data: {"candidates":null,"usageMetadata":null,"promptFeedback":null,"error":null}` + "\n\n" +
			stream(`{"functionCall":{"name":"f","args":null}}`+end), []string{"0 new f {}", "finish stop"}},
		{"fields of other types", `data: {"modelVersion":7,"usageMetadata":[]}` + "\n\n" + stream(end),
			[]string{"finish stop"}},
		{"cut after the end", stream(`{"text":"a"}`+end) + "data: {", []string{"text a", "finish stop"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for how, in := range map[string]io.Reader{"at once": strings.NewReader(tt.in),
				"byte by byte": iotest.OneByteReader(strings.NewReader(tt.in))} {
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
	for _, broken := range []string{"", stream(`{"text":"a"}`), "data: x\n\n", stream(`{"text":"a"}`) + "data: {",
		stream(reason("MALFORMED_FUNCTION_CALL")), stream(reason("OTHER")),
		stream(`{"text":"a"}` + reason("UNEXPECTED_TOOL_CALL")),
		`data: {"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}` + "\n\n"} {
		if got, err := deltas(t, strings.NewReader(broken)); err == nil {
			t.Errorf("%q: got %v, want an error", broken, got)
		}
	}
}

func TestUsage(t *testing.T) {
	var got model.Finish
	a := newAnswer(&model.Request{Model: "m"}, slog.New(slog.DiscardHandler))
	in := stream(end) +
		`data: {"modelVersion":"gemini-3.5-flash-001","usageMetadata":{"promptTokenCount":10,"cachedContentTokenCount":4,"candidatesTokenCount":5,"thoughtsTokenCount":3,"toolUsePromptTokenCount":2,"totalTokenCount":20}}` + "\n\n"
	for d, err := range upstream.Read(strings.NewReader(in), a, a.log) {
		if err != nil {
			t.Fatal(err)
		}
		got = d.(model.Finish)
	}
	want := model.Finish{Reason: model.FinishStop, Model: "gemini-3.5-flash-001",
		Usage: berth.Usage{InputTokens: 12, InputTokenDetails: berth.InputTokenDetails{CachedTokens: 4},
			OutputTokens: 8, OutputTokenDetails: berth.OutputTokenDetails{ReasoningTokens: 3}, TotalTokens: 20}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("finish (-want +got):\n%s", diff)
	}
}

func TestErrors(t *testing.T) {
	refused := func(status int) berth.Error {
		return berth.Error{Code: berth.CodeUnavailable, Wire: "upstream_refused",
			Message: fmt.Sprintf("The model's server refused the API key configured for it (%d).", status)}
	}
	invalid := func(message, param string) berth.Error {
		return berth.Error{Code: berth.CodeInvalid, Message: message, Param: param}
	}
	tests := []struct {
		status int
		body   string
		want   berth.Error // without Err
		after  time.Duration
	}{
		{400, `{"error":{"code":400,"message":"Please ensure that the number of function response parts is equal.","status":"INVALID_ARGUMENT"}}`,
			invalid("Please ensure that the number of function response parts is equal.", "input"), 0},
		{400, `[{"error":{"code":400,"message":"Unknown name \"x\" at 'tools[0].function_declarations[0]'","status":"INVALID_ARGUMENT"}}]`,
			invalid(`Unknown name "x" at 'tools[0].function_declarations[0]'`, "tools"), 0},
		{400, `{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"@type":"x","reason":"API_KEY_INVALID"}]}}`,
			refused(401), 0},
		{400, `{"error":{"code":400,"message":"User location is not supported for the API use.","status":"FAILED_PRECONDITION"}}`,
			refused(403), 0},
		{400, `{"error":{"code":400,"message":"The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}`,
			berth.Error{Code: berth.CodeInvalid, Wire: "context_length_exceeded", Param: "input",
				Message: "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)."}, 0},
		{403, `{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED"}}`, refused(403), 0},
		{404, `{"error":{"code":404,"message":"models/gemini-9 is not found for API version v1beta","status":"NOT_FOUND"}}`,
			berth.Error{Code: berth.CodeNotFound, Wire: "model_not_found", Param: "model",
				Message: "The model `gemini-9` does not exist or you do not have access to it."}, 0},
		{429, `{"error":{"code":429,"message":"Quota.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"7s"}]}}`,
			berth.Error{Code: berth.CodeRateLimited, Message: "Quota."}, 7 * time.Second},
		{500, `{"error":{"code":500,"message":"oops","status":"INTERNAL"}}`,
			berth.Error{Code: berth.CodeUpstream, Message: "The model's server failed (500)."}, 0},
		{503, `{"error":{"code":503,"message":"overloaded","status":"UNAVAILABLE"}}`,
			berth.Error{Code: berth.CodeUpstream, Message: "The model's server failed (503)."}, 0},
		{504, `{"error":{"code":504,"message":"late","status":"DEADLINE_EXCEEDED"}}`,
			berth.Error{Code: berth.CodeUpstream, Message: "The model's server failed (504)."}, 0},
	}
	up, err := upstream.New(upstream.Options{BaseURL: BaseURL})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		for where, status := range map[string]int{"as a status": tt.status, "within the stream": 0} {
			err := up.Refused(&upstream.Refusal{Status: status, Body: []byte(tt.body)}, explain, "gemini-9")
			got, ok := errors.AsType[*berth.Error](err)
			if !ok {
				t.Fatalf("%s: not a *berth.Error", tt.body)
			}
			shown := *got
			shown.Err = nil
			if diff := cmp.Diff(tt.want, shown); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", tt.body, where, diff)
			}
			if after, _ := model.RetryAfter(err); after != tt.after {
				t.Errorf("%s: retry after %v, want %v", tt.body, after, tt.after)
			}
		}
	}
}

func TestSubset(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"number","minimum":1}},"required":["b"],"additionalProperties":false}`, ``},
		{`{"$schema":"x","type":"string","minLength":3,"pattern":"a+"}`,
			`{"type":"string","description":"{minLength: 3, pattern: \"a+\"}"}`},
		{`{"type":"string","description":"A word.","default":"x"}`,
			`{"type":"string","description":"A word.\n\n{default: \"x\"}"}`},
		{`{"const":"a"}`, `{"enum":["a"]}`},
		{`{"$ref":"#/definitions/d","definitions":{"d":{"const":1}}}`,
			`{"$ref":"#/$defs/d","$defs":{"d":{"enum":[1]}}}`},
		{`{"anyOf":[{"type":"null"},{"type":"string","maxLength":1}],"items":true,"prefixItems":[{"not":{}}]}`,
			`{"anyOf":[{"type":"null"},{"type":"string","description":"{maxLength: 1}"}],"items":true,"prefixItems":[{"description":"{not: {}}"}]}`},
		{`{"type":"array","items":{"type":"object","patternProperties":{"a":{}}}}`,
			`{"type":"array","items":{"type":"object","description":"{patternProperties: {\"a\":{}}}"}}`},
		{`{"properties":7,"anyOf":7}`, `{"properties":7,"anyOf":7}`},
		{`[]`, `[]`},
	}
	for _, tt := range tests {
		want := tt.want
		if want == "" {
			want = tt.in
		}
		if got := string(subset(json.RawMessage(tt.in))); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.in, got, want)
		}
	}
}

// Any schema becomes valid JSON.
func FuzzSubset(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"const":{"b":[1]}}},"definitions":{"x":{"allOf":[{}]}}}`)
	f.Add(strings.Repeat(`{"items":`, 100) + "{}" + strings.Repeat("}", 100))
	f.Fuzz(func(t *testing.T, in string) {
		if json.Valid([]byte(in)) && !json.Valid(subset(json.RawMessage(in))) {
			t.Fatalf("%s became %s", in, subset(json.RawMessage(in)))
		}
	})
}

// The deltas of any input satisfy model.Provider.
func FuzzAnswer(f *testing.F) {
	f.Add(stream(`{"text":"a","thought":true}`, `{"functionCall":{"name":"f","args":[]},"thoughtSignature":"s"}`+end))
	f.Add(stream(`{"text":"","thoughtSignature":"s"}`) + `data: {"promptFeedback":{"blockReason":"SAFETY"}}` + "\n\n")
	f.Add(`data: {"error":{"code":429,"details":[{"retryDelay":"1s"}]}}` + "\n\n")
	f.Fuzz(func(t *testing.T, in string) {
		a := newAnswer(&model.Request{Model: "m", ParallelToolCalls: true}, slog.New(slog.DiscardHandler))
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
				if d.Index != len(ids) || d.Name == "" || d.ID == "" || ids[d.ID] || !json.Valid([]byte(d.Arguments)) {
					t.Fatalf("after %d calls: %#v", len(ids), d)
				}
				ids[d.ID] = true
			}
		}
		if !over {
			t.Fatal("no end")
		}
	})
}

func TestGenerations(t *testing.T) {
	for name, want := range map[string]generation{
		"gemini-2.5-flash-lite": {true, 2, 5, "flash-lite"}, "models/gemini-3-pro-preview": {true, 3, 0, "pro-preview"},
		"gemini-4-argon":       {true, 4, 0, "argon"},
		"gemini-2.0-flash-001": {true, 2, 0, "flash-"}, "gemma-3": {},
	} {
		if got := generationOf(name); got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	for name, want := range map[string]string{"gemini-3-pro-preview": "gemini-3-pro",
		"models/gemini-2.5-flash-preview-09-2025": "gemini-2.5-flash", "gemini-flash-latest": "gemini-flash",
		"double-1": "double-1"} {
		if got := family(name); got != want {
			t.Errorf("%s: got family %s, want %s", name, got, want)
		}
	}
}

// A signed call is sent as the model wrote it, even if it was stored with more fields.
// A changed call is not.
func TestSignedArguments(t *testing.T) {
	s := signature{Args: json.RawMessage(`{"b":1,"a":["x"]}`)}
	for stored, want := range map[string]string{
		`{"a":["x"],"b":1,"c":null}`: `{"b":1,"a":["x"]}`,
		`{"a":["y"],"b":1}`:          `{"a":["y"],"b":1}`,
		`{"a":["x"]}`:                `{"a":["x"]}`,
		`[`:                          `[`,
	} {
		if got := s.arguments(json.RawMessage(stored)); string(got) != want {
			t.Errorf("%s: got %s, want %s", stored, got, want)
		}
	}
}

// Code that a model writes for codeExecution, which it was not offered, is a call of the code interpreter if
// the request has that, and text otherwise.
func TestExecutableCode(t *testing.T) {
	in := `data: {"candidates":[{"content":{"parts":[{"text":"Let me see."},{"executableCode":{"language":"PYTHON","code":"print(1 < 2)\n"}}]}}]}` + "\n\n" +
		`data: {"candidates":[{"content":{"parts":[{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"made up"}}]},"finishReason":"STOP"}]}` + "\n\n"
	for _, tc := range []struct {
		tools []berth.FunctionTool
		want  []string
	}{
		{nil, []string{"text Let me see.", "text ```python\nprint(1 < 2)\n```\n", "finish stop"}},
		{[]berth.FunctionTool{{Name: "code_interpreter"}},
			[]string{"text Let me see.", "text ```python\nprint(1 < 2)\n```\n", "finish stop"}},
		{[]berth.FunctionTool{{Name: "code_interpreter", Hosted: &berth.HostedFunction{Type: berth.ToolCode}}},
			[]string{"text Let me see.", `call code_interpreter {"code":"print(1 \u003c 2)\n"}`, "finish stop"}},
	} {
		a := newAnswer(&model.Request{Model: "gemini-3.5-flash", ParallelToolCalls: true, Tools: tc.tools},
			slog.New(slog.DiscardHandler))
		var got []string
		for d, err := range upstream.Read(strings.NewReader(in), a, a.log) {
			switch d := d.(type) {
			case model.Text:
				got = append(got, "text "+d.Text)
			case model.Call:
				got = append(got, "call "+d.Name+" "+d.Arguments)
			case model.Finish:
				got = append(got, "finish "+string(d.Reason))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}
