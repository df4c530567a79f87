package chat

import (
	"encoding/json"
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
	"github.com/berth-run/berth/model/upstream"
)

// deltas decodes an answer and returns one line for each delta. New ids become "new".
func deltas(t *testing.T, in io.Reader, items ...berth.Item) (lines []string, err error) {
	t.Helper()
	a := newAnswer(&model.Request{Items: items}, slog.New(slog.DiscardHandler))
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
			if len(d.ID) > 40 && strings.HasPrefix(d.ID, berth.PrefixCall) {
				d.ID = "new"
			}
			lines = append(lines, fmt.Sprintf("%d %s %s %s", d.Index, d.ID, d.Name, d.Arguments))
		case model.Finish:
			lines = append(lines, "finish "+string(d.Reason))
		}
	}
	return lines, err
}

// stream returns a stream of deltas; "|" separates other fields of the chunk.
func stream(chunks ...string) string {
	var b strings.Builder
	for _, c := range chunks {
		delta, rest, _ := strings.Cut(c, "|")
		if rest != "" {
			rest = "," + rest
		}
		fmt.Fprintf(&b, "data: {\"choices\":[{\"index\":0,\"delta\":{%s}%s}]}\n\n", delta, rest)
	}
	return b.String()
}

const end = `|"finish_reason":"stop"`

func TestOddStreams(t *testing.T) {
	calls := func(pieces ...string) string {
		for i, p := range pieces {
			pieces[i] = `"tool_calls":[` + p + `]`
		}
		return stream(append(pieces, end)...)
	}
	tests := []struct {
		name, in string
		want     []string
	}{
		{"no end mark", stream(`"content":"a"`, end), []string{"text a", "finish stop"}},
		{"no finish_reason", stream(`"content":"a"`) + "data: [DONE]\n\n", []string{"text a", "finish stop"}},
		{"cut after the end", stream(`"content":"a"`, end) + "data: {\"us", []string{"text a", "finish stop"}},
		{"nothing is read after the end mark", stream(end) + "data: [DONE]\n\n" + stream(`"content":"late"`),
			[]string{"finish stop"}},
		{"comments and keep-alives", ": processing\n\nevent: ping\ndata: now\n\ndata:\n\n" + stream(`"content":"a"`,
			end), []string{"text a", "finish stop"}},
		{"null everywhere",
			stream(`"content":null,"refusal":null,"tool_calls":null,"reasoning":null,"function_call":null|"finish_reason":null,"logprobs":null`,
				end), []string{"finish stop"}},
		{"fields of other types",
			"data: {\"model\":7,\"choices\":[{\"index\":\"0\",\"delta\":{\"content\":\"a\",\"refusal\":false},\"finish_reason\":\"stop\"}],\"usage\":[]}\n\n",
			[]string{"text a", "finish stop"}},
		{"another choice", "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"b\"}}]}\n\n" + stream(end),
			[]string{"finish stop"}},
		{"reasoning in either field", stream(`"reasoning_content":"a"`, `"reasoning":"b"`,
			`"reasoning":"c","reasoning_content":"c"`, end),
			[]string{"thought a", "thought b", "thought c", "finish stop"}},
		{"content in parts",
			stream(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"a"}]`,
				end),
			[]string{"thought hm", "text a", "finish stop"}},
		{"finish reasons of an output limit", stream(`|"finish_reason":"model_length"`), []string{"finish length"}},
		{"finish reasons of a filter", stream(`|"finish_reason":"sensitive"`), []string{"finish content_filter"}},
		{"an unknown reason", stream(`|"finish_reason":"eos"`), []string{"finish stop"}},
		{"an answer that does not stream",
			"\n" + `{"choices":[{"message":{"content":"a","tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`,
			[]string{"text a", "0 c1 f {}", "finish stop"}},

		{"a call with all in one piece", calls(`{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"}}`),
			[]string{"0 c1 f {}", "finish stop"}},
		{"arguments as an object", calls(`{"index":0,"id":"c1","function":{"name":"f","arguments":{"a": 1}}}`),
			[]string{`0 c1 f {"a": 1}`, "finish stop"}},
		{"arguments null", calls(`{"index":0,"id":"c1","function":{"name":"f","arguments":null}}`),
			[]string{"0 c1 f ", "finish stop"}},
		{"no index", calls(`{"id":"c1","function":{"name":"f"}}`, `{"function":{"arguments":"{"}}`,
			`{"id":"c1","function":{"arguments":"}"}}`, `{"id":"c2","function":{"name":"g","arguments":"{}"}}`),
			[]string{"0 c1 f {", "0   }", "1 c2 g {}", "finish stop"}},
		{"no index, no id", calls(`{"function":{"name":"f","arguments":"{}"}}`,
			`{"function":{"name":"f","arguments":"{}"}}`), []string{"0 new f {}", "1 new f {}", "finish stop"}},
		{"one index for all", calls(`{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}`,
			`{"index":0,"id":"c2","function":{"name":"f","arguments":"[]"}}`,
			`{"index":0,"id":"c1","function":{"arguments":"}"}}`),
			[]string{"0 c1 f {", "1 c2 f []", "0   }", "finish stop"}},
		{"one index for all, no id", calls(`{"index":0,"function":{"name":"f","arguments":"{}"}}`,
			`{"index":0,"function":{"name":"g","arguments":"{}"}}`), []string{"0 new f {}", "1 new g {}",
			"finish stop"}},
		{"indexes from one", calls(`{"index":1,"id":"c1","function":{"name":"f"}}`,
			`{"index":2,"id":"c2","function":{"name":"g"}}`, `{"index":1,"function":{"arguments":"1"}}`,
			`{"index":2,"function":{"arguments":"2"}}`),
			[]string{"0 c1 f ", "0   1", "1 c2 g 2", "finish stop"}},
		{"an empty id", calls(`{"index":0,"id":"","function":{"name":"f","arguments":"{"}}`,
			`{"index":0,"id":"","function":{"arguments":"}"}}`), []string{"0 new f {", "0   }", "finish stop"}},
		{"an id with each piece", calls(`{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}`,
			`{"index":0,"id":"c1","function":{"name":"f","arguments":"}"}}`), []string{"0 c1 f {", "0   }",
			"finish stop"}},
		{"a new id with each piece", calls(`{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}`,
			`{"index":0,"id":"c2","function":{"arguments":"}"}}`), []string{"0 c1 f {", "0   }", "finish stop"}},
		{"an id after the first piece", calls(`{"index":0,"function":{"name":"f"}}`,
			`{"index":0,"id":"c1","function":{"arguments":"{}"}}`), []string{"0 c1 f {}", "finish stop"}},
		{"an id that is too long", calls(`{"index":0,"id":"` + strings.Repeat("c", 65) + `","function":{"name":"f"}}`),
			[]string{"0 new f ", "finish stop"}},
		{"the id of an earlier turn", calls(`{"index":0,"id":"old","function":{"name":"f"}}`),
			[]string{"0 new f ", "finish stop"}},
		{"a name in pieces", calls(`{"index":0,"id":"c1","function":{"name":"get_"}}`,
			`{"index":0,"function":{"name":"tide"}}`, `{"index":0,"function":{"arguments":"{}"}}`),
			[]string{"0 c1 get_tide {}", "finish stop"}},
		{"a name repeated and extended", calls(`{"index":0,"id":"c1","function":{"name":"get_"}}`,
			`{"index":0,"id":"c1","function":{"name":"get_tide","arguments":"{}"}}`), []string{"0 c1 get_tide {}",
			"finish stop"}},
		{"a name with each piece", calls(`{"index":0,"id":"c1","function":{"name":"f"}}`,
			`{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}`,
			`{"index":0,"id":"c1","function":{"name":"f","arguments":"}"}}`),
			[]string{"0 c1 f {", "0   }", "finish stop"}},
		{"a name after the arguments", calls(`{"index":0,"id":"c1","function":{"arguments":"{"}}`,
			`{"index":0,"function":{"name":"f","arguments":"}"}}`), []string{"0 c1 f {}", "finish stop"}},
		{"the predecessor of tool calls", stream(`"function_call":{"name":"f","arguments":""}`,
			`"function_call":{"arguments":"{}"}`, `|"finish_reason":"function_call"`), []string{"0 new f {}",
			"finish stop"}},
		{"a call in both fields",
			stream(`"function_call":{"name":"f","arguments":"{"},"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}]`,
				`"function_call":{"name":"f","arguments":"}"},"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"}"}}]`,
				`|"finish_reason":"tool_calls"`), []string{"0 c1 f {", "0   }", "finish stop"}},
		{"a call cut off before its name", stream(`"tool_calls":[{"index":0,"id":"c1","function":{}}]`,
			`|"finish_reason":"length"`), []string{"finish length"}},
	}
	old := berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: "old"})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for how, in := range map[string]io.Reader{"at once": strings.NewReader(tt.in),
				"byte by byte": iotest.OneByteReader(strings.NewReader(tt.in))} {
				got, err := deltas(t, in, old)
				if err != nil {
					t.Errorf("%s: %v", how, err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

func TestBrokenStreams(t *testing.T) {
	tests := []struct {
		name, in string
		refusal  string // the message of the error, if the upstream sent one
	}{
		{"nothing", "", ""},
		{"comments only", ": processing\n\n", ""},
		{"no end", stream(`"content":"a"`), ""},
		{"cut in an event", stream(`"content":"a"`) + `data: {"choices":[`, ""},
		{"not JSON", "data: Internal Server Error\n\n", ""},
		{"JSON that is not an answer", "{}", ""},
		{"a nameless call", stream(`"tool_calls":[{"index":0,"id":"c1","function":{"arguments":"{}"}}]`, end), ""},
		{"an aborted answer", stream(`"content":"a"`, `|"finish_reason":"error"`), ""},
		{"an error", stream(`"content":"a"`) + "data: {\"error\":{\"message\":\"no\"}}\n\n", "no"},
		{"an error as a string", "data: {\"error\":\"no\"}\n\n", "no"},
		{"an error event", "event: error\ndata: {\"message\":\"no\"}\n\n", "no"},
		{"an error without a stream", `{"error":{"message":"no","code":500}}`, "no"},
		{"an error beside a reason",
			"data: {\"error\":{\"message\":\"no\"},\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}\n\n",
			"no"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := deltas(t, strings.NewReader(tt.in))
			r, ok := errors.AsType[*upstream.Refusal](err)
			if err == nil || ok != (tt.refusal != "") || ok && upstream.Explain(r).Message != tt.refusal {
				t.Errorf("got error %v, want one with %q", err, tt.refusal)
			}
		})
	}
}

// An HTML page is not reported as a broken answer, because the operator must fix
// another problem.
func TestPage(t *testing.T) {
	if _, err := deltas(t, strings.NewReader("\n<html>Sign in to the network</html>")); err == nil ||
		!strings.Contains(err.Error(), "page") {
		t.Errorf("got error %v, want one about a page", err)
	}
}

func TestUsage(t *testing.T) {
	tests := []struct {
		in   string
		want berth.Usage
	}{
		{`null`, berth.Usage{}},
		{`{"prompt_tokens":5,"completion_tokens":2}`, berth.Usage{InputTokens: 5, OutputTokens: 2, TotalTokens: 7}},
		{`{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":null,"completion_tokens_details":{"reasoning_tokens":1},"prompt_cache_hit_tokens":4}`,
			berth.Usage{InputTokens: 5, InputTokenDetails: berth.InputTokenDetails{CachedTokens: 4},
				OutputTokens: 2, OutputTokenDetails: berth.OutputTokenDetails{ReasoningTokens: 1}, TotalTokens: 7}},
	}
	for _, tt := range tests {
		a := newAnswer(&model.Request{}, slog.New(slog.DiscardHandler))
		var got model.Finish
		for d, err := range upstream.Read(
			strings.NewReader(stream(end)+`data: {"model":"m-1","choices":[],"usage":`+tt.in+"}\n\n"), a, a.log) {
			if err != nil {
				t.Fatal(err)
			}
			got = d.(model.Finish)
		}
		if diff := cmp.Diff(model.Finish{Reason: model.FinishStop, Model: "m-1", Usage: tt.want}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.in, diff)
		}
	}
}

func TestLogprobsAreFilled(t *testing.T) {
	a := newAnswer(&model.Request{}, slog.New(slog.DiscardHandler))
	in := stream(`"content":"é"|"logprobs":{"content":[{"token":"é","logprob":-0.25}]}`, end)
	for d, err := range upstream.Read(strings.NewReader(in), a, a.log) {
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := d.(model.Text); ok {
			want := `{"token":"é","bytes":[195,169],"logprob":-0.25,"top_logprobs":[]}`
			if len(d.Logprobs) != 1 || string(d.Logprobs[0]) != want {
				t.Errorf("got %s, want %s", d.Logprobs, want)
			}
		}
	}
}

// The deltas of any input satisfy model.Provider.
func FuzzAnswer(f *testing.F) {
	f.Add(stream(`"content":"a","reasoning":"b"`,
		`"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{"}}]`, end) + "data: [DONE]\n\n")
	f.Add(`{"choices":[{"message":{"content":[{"text":"a"}],"function_call":{"name":"f","arguments":{}}},"finish_reason":"length"}]}`)
	f.Add("data: {\"error\":{\"code\":429}}\n\n")
	f.Add(stream(
		`"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"","index":-1},{"function":{"name":"g"}}]|"logprobs":{"content":[{"token":"x"}]}`,
		end))
	f.Fuzz(func(t *testing.T, in string) {
		a := newAnswer(&model.Request{}, slog.New(slog.DiscardHandler))
		over, ids := false, map[string]bool{}
		for d, err := range upstream.Read(strings.NewReader(in), a, a.log) {
			if over {
				t.Fatalf("after the end: %#v, %v", d, err)
			}
			over = err != nil
			if err != nil {
				if r, ok := errors.AsType[*upstream.Refusal](err); ok {
					_ = explain(r)
				}
				continue
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

// A chunk that textChunk decodes must mean the same to encoding/json.
func FuzzTextChunk(f *testing.F) {
	f.Add([]byte(
		`{"id":"c","model":"m","service_tier":null,"choices":[{"index":0,"delta":{"role":"assistant","content":"word é\n","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}`))
	f.Add([]byte(`{"choices":[{"delta":{"content":"a","content":"b"}}],"Choices":[],"choices":[{"index":1}]}`))
	f.Add([]byte(`{"choices":[{"delta":{"content":"\ud800\xff"}}],"usage":{}}`))
	f.Add([]byte(`{"choices":[{"delta":{"content":"a"},"message":{"content":"b"}},{"index":0}] , "error":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		name, tier, text, ok := textChunk(data)
		if !ok || !json.Valid(data) {
			return
		}
		var c chunk
		if err := json.Unmarshal(data, &c); err != nil {
			return // only a field that is not used is of another type
		}
		if c.Model != name || c.ServiceTier != tier || len(c.Choices) != 1 || c.Choices[0].Index != 0 ||
			c.Choices[0].Message != nil || c.Choices[0].FinishReason != "" ||
			c.Choices[0].Delta == nil || c.Choices[0].Delta.Content.text != text || c.Choices[0].Logprobs != nil ||
			c.Usage != nil {
			t.Errorf("%s: got %q, %q, %q, not %+v", data, name, tier, text, c)
		}
	})
}
