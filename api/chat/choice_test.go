package chat

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
)

// events returns the events of a response. The bytes select its items: messages, refusals,
// reasoning, calls of the client's tools and of hosted tools, complete or interrupted.
func events(bytes []byte) []berth.Event {
	var out []berth.Event
	for i, b := range bytes {
		at := i
		said := func(kind berth.EventType) {
			for n := range b >> 6 {
				out = append(out, berth.Event{Type: kind, OutputIndex: &at, Delta: berth.StringDelta(strings.Repeat("ü",
					int(n)))})
			}
		}
		it := berth.NewItem(berth.Message{ID: "msg_1", Type: berth.ItemMessage, Role: "assistant",
			Content: []berth.Content{}, Status: berth.StatusInProgress})
		kind := berth.EventOutputTextDelta
		switch b & 7 {
		case 1:
			kind = berth.EventRefusalDelta
		case 2:
			it, kind = berth.NewItem(berth.Reasoning{ID: "rs_1", Type: berth.ItemReasoning,
				Summary: []berth.Content{}}), berth.EventReasoningTextDelta
		case 3, 4:
			it = berth.NewItem(berth.FunctionCall{ID: "fc_1", Type: berth.ItemFunctionCall,
				CallID: fmt.Sprintf("call_%d", i), Name: "f"})
			kind = berth.EventFunctionArgumentsDelta
		case 5:
			it = berth.NewItem(berth.CustomToolCall{ID: "ctc_1", Type: berth.ItemCustomToolCall,
				CallID: fmt.Sprintf("call_%d", i), Name: "c"})
			kind = berth.EventCustomInputDelta
		case 6:
			it, kind = berth.NewItem(berth.ShellCall{ID: "sh_1", Type: berth.ItemShellCall}),
				berth.EventShellCommandAdded
		}
		out = append(out, berth.Event{Type: berth.EventOutputItemAdded, OutputIndex: &at, Item: &it})
		said(kind)
		status := berth.StatusCompleted
		if b&8 != 0 {
			status = berth.StatusIncomplete
		}
		end, err := it.With(map[string]any{"status": status})
		if err != nil {
			panic(err)
		}
		out = append(out, berth.Event{Type: berth.EventOutputItemDone, OutputIndex: &at, Item: &end})
	}
	last := berth.Event{Type: berth.EventCompleted, Response: &berth.Response{}}
	if len(bytes) > 0 && bytes[0]&16 != 0 {
		last = berth.Event{Type: berth.EventIncomplete,
			Response: &berth.Response{IncompleteDetails: &berth.IncompleteDetails{Reason: "max_output_tokens"}}}
	}
	return append(out, last)
}

// gathered joins a choice's chunks as a client does.
func gathered(t *testing.T, chunks []chunkChoice) wholeChoice {
	t.Helper()
	out := wholeChoice{Message: completionAnswer{Annotations: []annotation{}}}
	add := func(to **string, raw json.RawMessage) {
		var s *string
		if raw == nil || json.Unmarshal(raw, &s) != nil || s == nil {
			return
		}
		if *to == nil {
			*to = new(string)
		}
		**to += *s
	}
	for i, c := range chunks {
		d := c.Delta
		if (d.Role == "assistant") != (i == 0) || (c.FinishReason != nil) != (i == len(chunks)-1) {
			t.Errorf("chunk %d of %d has role %q and finish reason %v", i, len(chunks), d.Role, c.FinishReason)
		}
		if n := utf8.RuneCountInString(d.padding()); n < 1 || n > 16 {
			t.Errorf("chunk %d is padded by %d characters", i, n)
		}
		add(&out.Message.Content, d.Content)
		add(&out.Message.Refusal, d.Refusal)
		out.Message.ReasoningContent += d.ReasoningContent
		for _, call := range d.ToolCalls {
			if calls := &out.Message.ToolCalls; call.Index == len(*calls) {
				c := completionCall{ID: call.ID, Type: call.Type}
				if call.Custom != nil {
					c.Custom = &calledCustom{Name: call.Custom.Name}
				} else {
					c.Function = &calledFunction{Name: call.Function.Name}
				}
				*calls = append(*calls, c)
			}
			if c := out.Message.ToolCalls[call.Index]; c.Custom != nil {
				c.Custom.Input += call.Custom.Input
			} else {
				c.Function.Arguments += call.Function.Arguments
			}
		}
		if c.FinishReason != nil {
			out.FinishReason = *c.FinishReason
		}
	}
	out.Message.Role = "assistant"
	return out
}

// For any response, the chunks of a stream add up to the message of the same request without
// stream.
func FuzzCompletionChoice(f *testing.F) {
	f.Add([]byte{0x80, 0x06, 0xc0}, false)
	f.Add([]byte{0x82, 0x81, 0x83, 0xc5, 0x8b}, true)
	f.Add([]byte{0x98, 0xc0}, true)
	f.Fuzz(func(t *testing.T, items []byte, formed bool) {
		items = items[:min(len(items), 32)]
		told := func(stream bool) (*completionChoice, []chunkChoice, error) {
			asked := &completionRequest{Stream: stream, IncludeReasoning: true}
			if formed {
				asked.ResponseFormat = json.RawMessage(`{"type":"json_object"}`)
			}
			c := newCompletionChoice(0, asked,
				&berth.Response{Tools: []berth.Tool{berth.NewTool(berth.ShellTool{Type: berth.ToolShell})}}, nil)
			var chunks []chunkChoice
			for _, ev := range events(items) {
				more, err := c.apply(&ev)
				if err != nil {
					return c, nil, err
				}
				chunks = append(chunks, more...)
			}
			return c, chunks, nil
		}
		plain, none, err := told(false)
		if err != nil || len(none) > 0 {
			t.Fatalf("without a stream: got %d chunks, %v", len(none), err)
		}
		_, chunks, err := told(true)
		if err == errUnsaid && !formed {
			return // the turn is repeated: only a stream must end with an error
		}
		if err != nil {
			t.Fatal(err)
		}
		want, got := plain.whole(), gathered(t, chunks)
		if want.Message.Content != nil && *want.Message.Content == "" && got.Message.Content == nil {
			got.Message.Content = want.Message.Content
		}
		if want.Message.Content == nil && got.Message.Content != nil && *got.Message.Content == "" {
			got.Message.Content = nil // a thought came before the call; the message begins with it
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%x (-whole +stream):\n%s", items, diff)
		}
	})
}
