package chat_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/upstream"
)

// A server with custom tools gets them with their grammars, and calls of the history in
// their form. Its calls are those of the function that the engine sees.
func TestCustomTools(t *testing.T) {
	stream := []string{
		`{"choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"call_2","type":"custom","custom":{"name":"sql","input":""}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"custom":{"input":"SELECT \"a\"<\n"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"custom":{"input":"é;"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_3","type":"custom","custom":{"name":"sql","input":"SELECT b;"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":2,"id":"call_4","type":"function","function":{"name":"add","arguments":"{\"input\":1}"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}`, `[DONE]`,
	}
	var sent []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, ev := range stream {
			fmt.Fprintf(w, "data: %s\n\n", ev)
		}
	}))
	defer server.Close()
	sql := berth.FunctionTool{Type: "function", Name: "sql", Description: "A function.",
		Parameters: json.RawMessage(`{"type":"object"}`),
		Custom: &berth.CustomTool{Type: "custom", Name: "sql", Description: "Asks.",
			Format: &berth.CustomFormat{Type: "grammar", Syntax: "lark", Definition: `start: "x"`}}}
	free := berth.FunctionTool{Type: "function", Name: "free", Description: "Free.",
		Parameters: json.RawMessage(`{"type":"object"}`),
		Custom:     &berth.CustomTool{Type: "custom", Name: "free", Format: &berth.CustomFormat{Type: "text"}}}
	add := berth.FunctionTool{Type: "function", Name: "add", Parameters: json.RawMessage(`{"type":"object"}`)}
	var items []berth.Item
	for _, it := range []string{
		`{"role":"user","content":"hi"}`,
		`{"type":"function_call","status":"completed","call_id":"call_0","name":"sql","arguments":"{\"input\":\"SELECT c;\"}"}`,
		`{"type":"function_call","status":"completed","call_id":"call_1","name":"add","arguments":"{}"}`,
		`{"type":"function_call_output","call_id":"call_0","output":"c"}`,
		`{"type":"function_call_output","call_id":"call_1","output":"2"}`,
	} {
		var item berth.Item
		if err := item.UnmarshalJSON([]byte(it)); err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	req := &model.Request{Model: "m", Tools: []berth.FunctionTool{sql, free, add},
		ToolChoice: model.ToolChoice{Mode: "function", Name: "sql"}, ParallelToolCalls: true, Items: items}
	const outputs = `{"role":"tool","content":"c","tool_call_id":"call_0"},{"role":"tool","content":"2","tool_call_id":"call_1"}]`
	for _, tc := range []struct{ mode, tools, messages, choice string }{
		{"native", `[{"type":"custom","custom":{"name":"sql","description":"Asks.","format":{"type":"grammar","grammar":{"definition":"start: \"x\"","syntax":"lark"}}}},{"type":"custom","custom":{"name":"free","format":{"type":"text"}}},{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}]`,
			`[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_0","type":"custom","custom":{"name":"sql","input":"SELECT c;"}},{"id":"call_1","type":"function","function":{"name":"add","arguments":"{}"}}]},` + outputs,
			`{"type":"custom","custom":{"name":"sql"}}`},
		{"function",
			`[{"type":"function","function":{"name":"sql","description":"A function.","parameters":{"type":"object"}}},{"type":"function","function":{"name":"free","description":"Free.","parameters":{"type":"object"}}},{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}]`,
			`[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_0","type":"function","function":{"name":"sql","arguments":"{\"input\":\"SELECT c;\"}"}},{"id":"call_1","type":"function","function":{"name":"add","arguments":"{}"}}]},` + outputs,
			`{"type":"function","function":{"name":"sql"}}`},
	} {
		p, err := chat.New(chat.Options{Options: upstream.Options{BaseURL: server.URL}, CustomTools: tc.mode})
		if err != nil {
			t.Fatal(err)
		}
		var calls [3]strings.Builder
		for d, err := range p.Stream(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
			if c, ok := d.(model.Call); ok {
				calls[c.Index].WriteString(c.Name + c.Arguments)
			}
		}
		var body struct {
			Tools, Messages any
			Choice          any `json:"tool_choice"`
		}
		if err := json.Unmarshal(sent, &body); err != nil {
			t.Fatal(err)
		}
		for want, got := range map[string]any{tc.tools: body.Tools, tc.messages: body.Messages,
			tc.choice: body.Choice} {
			var w any
			if err := json.Unmarshal([]byte(want), &w); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(w, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.mode, diff)
			}
		}
		for i, want := range []string{`sql{"input":"SELECT \"a\"<\né;"}`, `sql{"input":"SELECT b;"}`,
			`add{"input":1}`} {
			if got := calls[i].String(); got != want {
				t.Errorf("call %d is %s, want %s", i, got, want)
			}
		}
	}
}
