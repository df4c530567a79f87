package modeltest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

const (
	image = "data:image/png;base64,iVBORw0KGgo="
	pdf   = "data:application/pdf;base64,JVBERi0="
)

// requests are the cases about a request's parameters.
var requests = []conversation{
	{name: "a plain request has no optional fields", run: func(t *testing.T, h Harness) {
		got := received(t, h, newRequest("hi"))
		got.Body, got.Header = nil, nil
		want := &Request{Model: "double-1", Messages: []Message{{Role: "user", Text: "hi"}}, ParallelToolCalls: true,
			MaxOutputTokens: h.MaxOutputTokens}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("got (-want +got):\n%s", diff)
		}
	}},
	{name: "sampling and limits", run: func(t *testing.T, h Harness) {
		req := newRequest("hi")
		temperature, topP := 0.25, 0.5
		req.Temperature, req.TopP, req.MaxOutputTokens, req.User = &temperature, &topP, 99, "someone"
		got := received(t, h, req)
		if *got.Temperature != 0.25 || *got.TopP != 0.5 || got.MaxOutputTokens != 99 || got.User != "someone" &&
			!h.lacks(User) {
			t.Errorf("got %+v", got)
		}
	}},
	{name: "reasoning effort", needs: Effort, run: func(t *testing.T, h Harness) {
		req := newRequest("hi")
		low := "low"
		req.Reasoning.Effort = &low
		if got := received(t, h, req); got.Effort != "low" {
			t.Errorf("got %q", got.Effort)
		}
	}},
	{name: "tools", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		got := received(t, h, req)
		if len(got.Tools) != 2 {
			t.Fatalf("got %d tools, want 2", len(got.Tools))
		}
		want := req.Tools[0]
		if h.lacks(StrictTools) {
			want.Strict = nil
		}
		if diff := cmp.Diff(want, got.Tools[0]); diff != "" {
			t.Errorf("tool (-want +got):\n%s", diff)
		}
		if got.Tools[1].Name != "now" || got.Tools[1].Strict != nil && *got.Tools[1].Strict {
			t.Errorf("the plain tool: got %+v", got.Tools[1])
		}
		if m := got.ToolChoice.Mode; m != "" && m != "auto" || !got.ParallelToolCalls {
			t.Errorf("got choice %q and parallel %v, want the defaults", m, got.ParallelToolCalls)
		}
	}},
	{name: "a tool with an invalid schema is refused", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		req.Tools[1].Parameters = json.RawMessage(`["object"]`)
		p, _ := h.Open(t, Always(Reply(stop)))
		_, err := Collect(t, p, req)
		if e := wantError(t, err, berth.CodeInvalid); !strings.Contains(e.Message, "now") {
			t.Errorf("the message does not name the tool: %s", e.Message)
		}
	}},
	{name: "tool choices", run: func(t *testing.T, h Harness) {
		for _, want := range []model.ToolChoice{{Mode: "none"}, {Mode: "required"}, {Mode: "function", Name: "now"}} {
			req := withTools("hi")
			req.ToolChoice, req.ParallelToolCalls = want, false
			got := received(t, h, req)
			if got.ToolChoice != want || got.ParallelToolCalls && want.Mode != "none" && !h.lacks(OneCall) {
				t.Errorf("got %+v and parallel %v, want %+v and false", got.ToolChoice, got.ParallelToolCalls, want)
			}
		}
	}},
	{name: "structured output", needs: Structured, run: func(t *testing.T, h Harness) {
		for _, format := range []string{
			`{"type":"json_schema","name":"tide","description":"A tide.","schema":{"type":"object","properties":{"m":{"type":"number"}},"required":["m"],"additionalProperties":false},"strict":true}`,
			`{"type":"json_object"}`,
			`{"type":"text"}`,
		} {
			req := newRequest("answer in JSON")
			req.Text = berth.TextConfig{Format: json.RawMessage(format), Verbosity: "medium"}
			if strings.Contains(format, `"json_object"`) && h.lacks(JSONObject) {
				continue
			}
			var want any
			if !strings.Contains(format, `"text"`) {
				want = decoded(t, []byte(format))
			}
			if fields, ok := want.(map[string]any); ok && h.lacks(SchemaNames) {
				delete(fields, "name")
				delete(fields, "description")
				delete(fields, "strict")
			}
			if diff := cmp.Diff(want, decoded(t, received(t, h, req).Format)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", format, diff)
			}
		}
	}},
	{name: "stop sequences", needs: Stops, run: func(t *testing.T, h Harness) {
		req := newRequest("hi")
		req.Sampling.Stop = []string{"END", "\n\n"}
		if diff := cmp.Diff(req.Sampling.Stop, received(t, h, req).Stop); diff != "" {
			t.Errorf("got (-want +got):\n%s", diff)
		}
	}},
	{name: "images", run: func(t *testing.T, h Harness) {
		req := &model.Request{Model: "double-1", Items: []berth.Item{message("user",
			berth.Content{Type: "input_text", Text: "what is it?"},
			berth.Content{Type: "input_image", ImageURL: image, Detail: "original"},
			berth.Content{Type: "input_image", ImageURL: "https://example.com/a.png", Detail: "low"})}}
		want := []Message{{Role: "user", Text: "what is it?", Images: []string{image, "https://example.com/a.png"}}}
		if h.lacks(ImageURLs) {
			p, _ := h.Open(t, Always(Reply(stop)))
			_, err := Collect(t, p, req)
			wantError(t, err, berth.CodeInvalid)
			var m berth.Message
			if err := req.Items[0].Decode(&m); err != nil {
				t.Fatal(err)
			}
			req.Items[0] = message("user", m.Content[:2]...)
			want[0].Images = want[0].Images[:1]
		}
		if diff := cmp.Diff(want, received(t, h, req).Messages); diff != "" {
			t.Errorf("got (-want +got):\n%s", diff)
		}
	}},
	{name: "files", needs: Files, run: func(t *testing.T, h Harness) {
		req := &model.Request{Model: "double-1", Items: []berth.Item{message("user",
			berth.Content{Type: "input_file", FileData: pdf, Filename: "tides.pdf"},
			berth.Content{Type: "input_text", Text: "read it"})}}
		want := []Message{{Role: "user", Text: "read it", Files: []string{"tides.pdf"}}}
		if h.lacks(FileNames) {
			want[0].Files[0] = "application/pdf"
		}
		if diff := cmp.Diff(want, received(t, h, req).Messages); diff != "" {
			t.Errorf("got (-want +got):\n%s", diff)
		}
	}},
	{name: "an image without data is refused", run: func(t *testing.T, h Harness) {
		p, _ := h.Open(t, Always(Reply(stop)))
		_, err := Collect(t, p, &model.Request{Model: "double-1",
			Items: []berth.Item{message("user", berth.Content{Type: "input_image"})}})
		wantError(t, err, berth.CodeInvalid)
	}},
}

func decoded(t *testing.T, raw []byte) (v any) {
	t.Helper()
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
	}
	return v
}
