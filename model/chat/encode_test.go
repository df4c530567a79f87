package chat

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/model/upstream"
)

// The JSON of a request has each message as package json writes it.
func TestRequestJSON(t *testing.T) {
	r := &request{Model: "m<1>", Messages: []message{
		{Role: "system", Content: "Be \"short\".\n\t\x00\x1f<&> ü 🌊 \u2028"},
		{Role: "user",
			Content: []part{{Type: "text", Text: "Look <here>."},
				{Type: "image_url", ImageURL: &imageURL{URL: "data:,"}}}},
		{Role: "user", Content: "a", Name: "ann"},
		{Role: "assistant", ReasoningContent: "Hm.",
			ToolCalls: []toolCall{{ID: "c1", Type: "function", Function: &functionCall{"f", "{}"}}}},
		{Role: "assistant", Content: "b", Reasoning: "Hm."},
		{Role: "tool", Content: "", ToolCallID: "c1"},
		{Role: "user", Content: ""},
	}, MaxTokens: 7, hints: hints{PromptCacheKey: "k"}}
	for _, n := range []int{len(r.Messages), 1, 0} {
		r.Messages = r.Messages[:n]
		raw, err := upstream.AppendJSON([]byte("before"), r)
		if err != nil {
			t.Fatal(err)
		}
		text, ok := strings.CutPrefix(string(raw), "before")
		if !ok || strings.Contains(text, `\u003c`) {
			t.Errorf("got %s", raw)
		}
		want := map[string]any{"model": r.Model, "messages": asJSON(t, r.Messages)}
		for name, value := range asJSON(t, (*fields)(r)).(map[string]any) {
			want[name] = value
		}
		var got any
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with %d messages (-want +got):\n%s", n, diff)
		}
	}
}

func asJSON(t *testing.T, v any) (decoded any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "a", "\"\\/\b\f\n\r\t\x00\x7f", "ü 🌊 \u2028", "\xff", "\xe2\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var got string
		raw := appendString([]byte("x"), s)
		if err := json.Unmarshal(raw[1:], &got); err != nil || got != strings.ToValidUTF8(s, "\uFFFD") {
			t.Errorf("%q: got %s, %v", s, raw, err)
		}
	})
}
