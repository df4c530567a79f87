package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/berth-run/berth/model"
)

// The edit compact_20260112 replaces the context by a summary, before the first turn too. The block comes back with the
// next message in place of what it summarises.
func TestMessagesCompaction(t *testing.T) {
	t.Parallel()
	summary := turn(model.Text{Text: "They count sheep."}, stopped)
	says := turn(model.Text{Text: "Done."}, stopped)
	long := strings.Repeat("sheep ", 400)
	edit := func(more string) string {
		return `"context_management":{"edits":[{"type":"compact_20260112","trigger":{"type":"input_tokens","value":100}` +
			more + `}]},`
	}
	const first = `"messages":[{"role":"user","content":"count"},{"role":"assistant","content":"`
	history := first + long + `"},{"role":"user","content":"more"}`
	h, m := playing(t, summary, says, says, summary, says, summary, summary)

	o := h.message(edit(`,"instructions":"Name the animals."`) + history + `]`)
	if got := kindsOf(o["content"]); got != "compaction text" || o["stop_reason"] != "end_turn" ||
		o.at("content", 0, "content") != "They count sheep." {
		t.Fatalf("got %v", o)
	}
	if got := o.at("usage", "iterations"); kindsOf(got) != "compaction message" ||
		o.at("usage", "input_tokens") != o.at("usage", "iterations", 1, "input_tokens") {
		t.Errorf("got usage %v", o["usage"])
	}
	asked := func(i int) string {
		var all strings.Builder
		for _, it := range m.asked[i].Items {
			all.Write(it.Raw())
		}
		return all.String()
	}
	if got := asked(0); !strings.Contains(got, "Name the animals.") || !strings.Contains(got, "sheep sheep") {
		t.Errorf("the summary was asked for with %s", got)
	}
	if got := asked(1); strings.Contains(got, "sheep sheep") || !strings.Contains(got, "They count sheep.") {
		t.Errorf("after the compaction the model got %s", got)
	}
	content, err := json.Marshal(o["content"])
	check(t, err)
	next := history + `,{"role":"assistant","content":` + string(content) + `},{"role":"user","content":"and?"}]`
	h.message(next)
	if got := asked(2); strings.Contains(got, "sheep sheep") || !strings.Contains(got, "They count sheep.") ||
		!strings.Contains(got, "and?") {
		t.Errorf("the next time the model got %s", got)
	}

	answer, kinds := h.streamed(edit("") + history + `]`)
	if len(answer.Content) != 2 || answer.Content[0].AsCompaction().EncryptedContent == "" ||
		!strings.Contains(strings.Join(kinds, " "), "content_block_delta") {
		t.Errorf("streamed %s", answer.RawJSON())
	}
	if got := answer.Usage.Iterations; len(got) != 2 || got[0].Type != "compaction" || got[1].Type != "message" {
		t.Errorf("streamed usage %s", answer.Usage.RawJSON())
	}
	answer, _ = h.streamed(edit(`,"pause_after_compaction":true`) + history + `]`)
	if len(answer.Content) != 1 || answer.StopReason != "compaction" || answer.Usage.OutputTokens != 0 ||
		len(answer.Usage.Iterations) != 1 {
		t.Errorf("streamed and paused: %s", answer.RawJSON())
	}
	o = h.message(edit(`,"pause_after_compaction":true`) + history + `]`)
	if got := kindsOf(o["content"]); got != "compaction" || o["stop_reason"] != "compaction" {
		t.Errorf("paused: got %v", o)
	}
}

// Compactions of another server are read by their summaries. Failed ones have none and change nothing.
func TestMessagesCompactionForeign(t *testing.T) {
	t.Parallel()
	says := turn(model.Text{Text: "Done."}, stopped)
	h, m := playing(t, says, says, says)
	for i, tc := range []struct{ block, has, lacks string }{
		{`"content":"They count sheep.","encrypted_content":"other"`, "They count sheep.", "the start"},
		{`"content":null,"encrypted_content":null`, "the start", "summary"},
		{`"content":"They count sheep."`, "They count sheep.", "the start"},
	} {
		h.message(`"messages":[{"role":"user","content":"the start"},{"role":"assistant","content":[{"type":"compaction",` +
			tc.block + `},{"type":"text","text":"ok"}]},{"role":"user","content":"on"}]`)
		var all strings.Builder
		for _, it := range m.asked[i].Items {
			all.Write(it.Raw())
		}
		if got := all.String(); !strings.Contains(got, tc.has) || strings.Contains(got, tc.lacks) {
			t.Errorf("%s: the model got %s", tc.block, got)
		}
	}
	o := h.call(400, "POST", "/v1/messages", `{"model":"played","max_tokens":9,`+hello+
		`,"context_management":{"edits":[{"type":"compact_20260112","trigger":{"type":"tool_uses","value":3}}]}}`)
	if got, _ := o.at("error", "message").(string); !strings.HasPrefix(got, "context_management.edits.0.trigger.type: ") {
		t.Errorf("a wrong trigger: got %v", o)
	}
}
