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

// native returns a function in place of a tool of the upstream.
func native(entry string) berth.FunctionTool {
	var t berth.Tool
	if err := t.UnmarshalJSON([]byte(entry)); err != nil {
		panic(err)
	}
	strict := false
	return berth.FunctionTool{Type: "function", Name: t.Type(), Parameters: json.RawMessage(`{"type":"object"}`),
		Strict: &strict, Native: &t}
}

// answering starts a server that answers with the events and records the request.
func answering(t *testing.T, events []string, sent *[]byte) *openai.Provider {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*sent, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, ev := range events {
			fmt.Fprintf(w, "data: %s\n\n", ev)
		}
	}))
	t.Cleanup(server.Close)
	p, err := openai.New(openai.Options{Options: upstream.Options{BaseURL: server.URL},
		NativeTools: openai.NativeTools})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// line returns a delta in short.
func line(d model.Delta) string {
	switch d := d.(type) {
	case model.Native:
		raw, _ := json.Marshal(d.Event)
		return fmt.Sprintf("%d %s", d.Index, raw)
	case model.Finish:
		return "finish"
	case model.Item:
		return "item " + d.Item.String()
	}
	return fmt.Sprintf("%T", d)
}

// The items and events of the upstream's own tools pass unchanged and in order. Events that
// are not the tool's do not.
func TestNativeAnswer(t *testing.T) {
	var sent []byte
	p := answering(t, []string{
		`{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}`,
		`{"type":"response.output_item.done","sequence_number":3,"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[],"encrypted_content":"x"}}`,
		`{"type":"response.output_item.added","sequence_number":4,"output_index":1,"item":{"id":"ig_1","type":"image_generation_call","status":"in_progress"}}`,
		`{"type":"response.image_generation_call.in_progress","sequence_number":5,"output_index":1,"item_id":"ig_1"}`,
		`{"type":"response.image_generation_call.generating","sequence_number":6,"output_index":1,"item_id":"ig_1"}`,
		`{"type":"response.image_generation_call.partial_image","sequence_number":7,"output_index":1,"item_id":"ig_1","partial_image_index":0,"partial_image_b64":"cA==","size":"1536x1024","quality":"low","background":"opaque","output_format":"webp"}`,
		`{"type":"response.output_text.delta","output_index":1,"item_id":"ig_1","delta":"no"}`,
		`{"type":"response.image_generation_call.completed","sequence_number":8,"output_index":1,"item_id":"ig_1"}`,
		`{"type":"response.output_item.done","sequence_number":9,"output_index":1,"item":{"id":"ig_1","type":"image_generation_call","status":"completed","background":"opaque","output_format":"webp","quality":"low","result":"aQ==","revised_prompt":"A cat.","size":"1536x1024","new":{"a":1}}}`,
		`{"type":"response.output_item.added","output_index":2,"item":{"id":"cu_1","type":"computer_call","status":"in_progress","call_id":"call_1","action":{"type":"screenshot"},"pending_safety_checks":[]}}`,
		`{"type":"response.output_item.done","output_index":2,"item":{"id":"cu_1","type":"computer_call","status":"completed","call_id":"call_1","action":{"type":"screenshot"},"pending_safety_checks":[{"id":"cu_sc_1","code":"malicious_instructions","message":"m"}]}}`,
		`{"type":"response.completed","response":{"model":"m","usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}`,
	}, &sent)
	var got []string
	for d, err := range p.Stream(t.Context(), &model.Request{Model: "m",
		Items: []berth.Item{raw(`{"role":"user","content":"hi"}`)},
		Tools: []berth.FunctionTool{native(`{"type":"image_generation"}`), native(`{"type":"computer"}`)}}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, line(d))
	}
	want := []string{
		`item {"encrypted_content":"x","summary":[],"type":"reasoning"}`,
		`1 {"type":"response.output_item.added","sequence_number":0,"item":{"id":"ig_1","type":"image_generation_call","status":"in_progress"}}`,
		`1 {"type":"response.image_generation_call.in_progress","sequence_number":0,"item_id":"ig_1"}`,
		`1 {"type":"response.image_generation_call.generating","sequence_number":0,"item_id":"ig_1"}`,
		`1 {"type":"response.image_generation_call.partial_image","sequence_number":0,"item_id":"ig_1","partial_image_index":0,"partial_image_b64":"cA==","size":"1536x1024","quality":"low","background":"opaque","output_format":"webp"}`,
		`1 {"type":"response.image_generation_call.completed","sequence_number":0,"item_id":"ig_1"}`,
		`1 {"type":"response.output_item.done","sequence_number":0,"item":{"id":"ig_1","type":"image_generation_call","status":"completed","background":"opaque","output_format":"webp","quality":"low","result":"aQ==","revised_prompt":"A cat.","size":"1536x1024","new":{"a":1}}}`,
		`2 {"type":"response.output_item.added","sequence_number":0,"item":{"id":"cu_1","type":"computer_call","status":"in_progress","call_id":"call_1","action":{"type":"screenshot"},"pending_safety_checks":[]}}`,
		`2 {"type":"response.output_item.done","sequence_number":0,"item":{"id":"cu_1","type":"computer_call","status":"completed","call_id":"call_1","action":{"type":"screenshot"},"pending_safety_checks":[{"id":"cu_sc_1","code":"malicious_instructions","message":"m"}]}}`,
		"finish",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deltas (-want +got):\n%s", diff)
	}
}

// The upstream gets its own tools as they are, and their items without Berth's extensions.
func TestNativeRequest(t *testing.T) {
	for _, tc := range []struct {
		name, entry, choice string
		items               []string
		want                string
	}{
		{"an image", `{"type":"image_generation","partial_images":2,"input_fidelity":"high"}`, "image_generation",
			[]string{
				`{"role":"user","content":"hi"}`,
				`{"type":"image_generation_call","id":"ig_1","status":"completed","result":"aQ==","berth":{"images":[1]}}`,
				`{"role":"user","content":"again"}`,
			}, `{"tools":[{"type":"image_generation","partial_images":2,"input_fidelity":"high"}],"tool_choice":{"type":"image_generation"},"max_tool_calls":3,
			"input":[{"role":"user","content":"hi"},{"type":"image_generation_call","id":"ig_1","status":"completed","result":"aQ=="},{"role":"user","content":"again"}]}`},
		{"a computer",
			`{"type":"computer_use_preview","environment":"browser","display_width":1024,"display_height":768}`,
			"computer_use_preview", []string{
				`{"role":"user","content":"hi"}`,
				`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}`,
				`{"type":"computer_call","id":"cu_1","status":"completed","call_id":"call_1","action":{"type":"wait"},"pending_safety_checks":[]}`,
				`{"type":"computer_call_output","id":"cuo_1","call_id":"call_1","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,aQ=="},"acknowledged_safety_checks":[{"id":"a"}]}`,
				`{"type":"computer_call_output","call_id":"call_2","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,aQ=="}}`,
			}, `{"tools":[{"type":"computer_use_preview","environment":"browser","display_width":1024,"display_height":768}],"tool_choice":{"type":"computer_use_preview"},"max_tool_calls":3,"truncation":"auto",
			"input":[{"role":"user","content":"hi"},{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"},
			{"type":"computer_call","id":"cu_1","status":"completed","call_id":"call_1","action":{"type":"wait"},"pending_safety_checks":[]},
			{"type":"computer_call_output","call_id":"call_1","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,aQ=="},"acknowledged_safety_checks":[{"id":"a"}]}]}`},
	} {
		var sent []byte
		p := answering(t,
			[]string{`{"type":"response.completed","response":{"model":"m","usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}`},
			&sent)
		req := &model.Request{Model: "m", Tools: []berth.FunctionTool{native(tc.entry)},
			ToolChoice: model.ToolChoice{Mode: "function", Name: tc.choice}, ParallelToolCalls: true, MaxToolCalls: 3}
		for _, it := range tc.items {
			req.Items = append(req.Items, raw(it))
		}
		for _, err := range p.Stream(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
		}
		var got, want map[string]any
		if err := json.Unmarshal(sent, &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"model", "include", "store", "stream"} {
			delete(got, k)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// OpenAI's own server gets the tools that its models have; another one those of its
// configuration.
func TestHasTool(t *testing.T) {
	own, err := openai.New(openai.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"gpt-5": "image_generation", "gpt-5-mini-2025-08-07": "image_generation", "gpt-5.2": "image_generation",
		"gpt-5.4": "image_generation computer", "gpt-5.10-pro": "image_generation computer",
		"gpt-6":  "image_generation computer",
		"gpt-4o": "image_generation", "gpt-4o-mini": "image_generation", "gpt-4.1-nano": "image_generation",
		"o3": "image_generation", "computer-use-preview-2025-03-11": "computer_use_preview",
		"gpt-4": "", "gpt-4-turbo": "", "gpt-3.5-turbo": "", "gpt-4o-audio-preview": "", "gpt-5.3-codex": "",
		"o3-mini": "", "o4-mini": "", "qwen3": "", "gpt-oss-120b": "", "gpt-99999999999999999999": "",
	} {
		var got []string
		for _, tool := range openai.NativeTools {
			if own.HasTool(name, tool) {
				got = append(got, tool)
			}
		}
		if name == "gpt-99999999999999999999" {
			continue // it only must not panic
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has %v, want %q", name, got, want)
		}
	}
	other, err := openai.New(openai.Options{Options: upstream.Options{BaseURL: "http://a.test/v1"}})
	if err != nil || other.HasTool("gpt-5", "image_generation") {
		t.Errorf("another server has the tool, error %v", err)
	}
	none, err := openai.New(openai.Options{NativeTools: []string{}})
	if err != nil || none.HasTool("gpt-5", "image_generation") {
		t.Errorf("a server configured without tools has one, error %v", err)
	}
	if _, err := openai.New(openai.Options{NativeTools: []string{"shell"}}); err == nil {
		t.Error("an unknown tool was accepted")
	}
}

// A request with files is a multipart form.
func TestForwardForm(t *testing.T) {
	got := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1 << 20); err != nil {
			t.Error(err)
		}
		for name, values := range r.MultipartForm.Value {
			got[name] = strings.Join(values, ",")
		}
		for name, files := range r.MultipartForm.File {
			for _, f := range files {
				in, _ := f.Open()
				content, _ := io.ReadAll(in)
				got[name] += fmt.Sprintf("%s %s %s;", f.Filename, f.Header.Get("Content-Type"), content)
			}
		}
		fmt.Fprint(w, `{"data":[{"b64_json":"aQ=="}]}`)
	}))
	defer server.Close()
	p, err := openai.New(openai.Options{Options: upstream.Options{BaseURL: server.URL + "/v1"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range p.Forward(t.Context(), &model.Request{Model: "m",
		Forwarded: &model.Forwarded{Endpoint: "images/edits",
			Fields: map[string]json.RawMessage{"prompt": json.RawMessage(`"a \"b\" é"`), "n": json.RawMessage("1"),
				"stream": json.RawMessage("true")},
			Files: []model.FormFile{{Field: "image[]", Name: "1.png", MediaType: "image/png", Content: []byte("A")},
				{Field: "image[]", Name: "2.webp", MediaType: "image/webp", Content: []byte("B")}}}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{"model": "m", "prompt": `a "b" é`, "n": "1", "stream": "true",
		"image[]": "1.png image/png A;2.webp image/webp B;"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("form (-want +got):\n%s", diff)
	}
}
