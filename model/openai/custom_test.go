package openai_test

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
	"github.com/berth-run/berth/model/openai"
	"github.com/berth-run/berth/model/upstream"
)

// A server with custom tools gets them with their grammars, and the calls of the history as
// their own items. Its calls are those of the function that the engine sees.
func TestCustomTools(t *testing.T) {
	stream := []string{
		`{"type":"response.output_item.added","output_index":0,"item":{"type":"custom_tool_call","id":"ctc_1","call_id":"call_2","name":"sql","input":""}}`,
		`{"type":"response.custom_tool_call_input.delta","output_index":0,"delta":"SELECT \"a\"<\n"}`,
		`{"type":"response.custom_tool_call_input.delta","output_index":0,"delta":"é;"}`,
		`{"type":"response.custom_tool_call_input.done","output_index":0,"input":"SELECT \"a\"<\né;"}`,
		`{"type":"response.output_item.done","output_index":0,"item":{"type":"custom_tool_call","id":"ctc_1","call_id":"call_2","name":"sql","input":"SELECT \"a\"<\né;"}}`,
		`{"type":"response.output_item.added","output_index":1,"item":{"type":"custom_tool_call","id":"ctc_2","call_id":"call_3","name":"sql","input":"SELECT b;"}}`,
		`{"type":"response.output_item.done","output_index":1,"item":{"type":"custom_tool_call","id":"ctc_2","call_id":"call_3","name":"sql","input":"SELECT b;"}}`,
		`{"type":"response.completed","response":{"model":"m"}}`,
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
	strict := false
	sql := berth.FunctionTool{Type: "function", Name: "sql", Description: "A function.",
		Parameters: json.RawMessage(`{"type":"object"}`), Strict: &strict,
		Custom: &berth.CustomTool{Type: "custom", Name: "sql", Description: "Asks.",
			Format: &berth.CustomFormat{Type: "grammar", Syntax: "lark", Definition: `start: "x"`}}}
	add := berth.FunctionTool{Type: "function", Name: "add", Parameters: json.RawMessage(`{"type":"object"}`),
		Strict: &strict}
	req := &model.Request{Model: "m", Tools: []berth.FunctionTool{sql, add},
		ToolChoice: model.ToolChoice{Mode: "function", Name: "sql"}, Items: []berth.Item{
			raw(`{"role":"user","content":"hi"}`),
			raw(`{"type":"function_call","id":"ctc_0","status":"completed","call_id":"call_0","name":"sql","arguments":"{\"input\":\"SELECT c;\"}"}`),
			raw(`{"type":"function_call","id":"fc_0","status":"completed","call_id":"call_1","name":"add","arguments":"{}"}`),
			raw(`{"type":"function_call_output","status":"completed","call_id":"call_0","output":"c"}`),
			raw(`{"type":"function_call_output","status":"completed","call_id":"call_1","output":"2"}`),
		}}
	for _, tc := range []struct{ mode, tools, input, choice string }{
		{"native", `[{"type":"custom","name":"sql","description":"Asks.","format":{"type":"grammar","syntax":"lark","definition":"start: \"x\""}},{"type":"function","name":"add","parameters":{"type":"object"},"strict":false}]`,
			`[{"role":"user","content":"hi"},{"type":"custom_tool_call","status":"completed","call_id":"call_0","name":"sql","input":"SELECT c;"},{"type":"function_call","id":"fc_0","status":"completed","call_id":"call_1","name":"add","arguments":"{}"},{"type":"custom_tool_call_output","status":"completed","call_id":"call_0","output":"c"},{"type":"function_call_output","status":"completed","call_id":"call_1","output":"2"}]`,
			`{"type":"custom","name":"sql"}`},
		{"function",
			`[{"type":"function","name":"sql","description":"A function.","parameters":{"type":"object"},"strict":false},{"type":"function","name":"add","parameters":{"type":"object"},"strict":false}]`,
			`[{"role":"user","content":"hi"},{"type":"function_call","status":"completed","call_id":"call_0","name":"sql","arguments":"{\"input\":\"SELECT c;\"}"},{"type":"function_call","id":"fc_0","status":"completed","call_id":"call_1","name":"add","arguments":"{}"},{"type":"function_call_output","status":"completed","call_id":"call_0","output":"c"},{"type":"function_call_output","status":"completed","call_id":"call_1","output":"2"}]`,
			`{"type":"function","name":"sql"}`},
	} {
		p, err := openai.New(openai.Options{Options: upstream.Options{BaseURL: server.URL}, CustomTools: tc.mode})
		if err != nil {
			t.Fatal(err)
		}
		var calls [2]strings.Builder
		items := 0
		for d, err := range p.Stream(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
			switch d := d.(type) {
			case model.Call:
				calls[d.Index].WriteString(d.Arguments)
			case model.Item:
				items++
			}
		}
		var body struct {
			Tools, Input any
			Choice       any `json:"tool_choice"`
		}
		if err := json.Unmarshal(sent, &body); err != nil {
			t.Fatal(err)
		}
		for want, got := range map[string]any{tc.tools: body.Tools, tc.input: body.Input, tc.choice: body.Choice} {
			var w any
			if err := json.Unmarshal([]byte(want), &w); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(w, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.mode, diff)
			}
		}
		if tc.mode == "function" {
			if items != 2 {
				t.Errorf("%d unknown items, want 2", items)
			}
			continue
		}
		for i, want := range []string{"SELECT \"a\"<\né;", "SELECT b;"} {
			var a struct{ Input string }
			if err := json.Unmarshal([]byte(calls[i].String()), &a); err != nil || a.Input != want || items != 0 {
				t.Errorf("call %d has the arguments %s", i, calls[i].String())
			}
		}
	}
}
