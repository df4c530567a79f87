package modeltest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// histories are the cases about how a conversation is sent. The doubles refuse
// conversations in the wrong order.
var histories = []conversation{
	{name: "instructions and roles", run: func(t *testing.T, h Harness) {
		req := newRequest("one")
		req.Instructions = "Be brief."
		req.Items = append(req.Items, assistant("1"), user("two"), assistant("2"), user("three"))
		got := received(t, h, req)
		if got.System != "Be brief." {
			t.Errorf("got instructions %q", got.System)
		}
		wantMessages(t, got, Message{Role: "user", Text: "one"}, Message{Role: "assistant", Text: "1"},
			Message{Role: "user", Text: "two"}, Message{Role: "assistant", Text: "2"},
			Message{Role: "user", Text: "three"})
	}},
	{name: "system messages before the first turn become one system text", run: func(t *testing.T, h Harness) {
		req := &model.Request{Model: "double-1", Instructions: "A.", Items: []berth.Item{
			message("developer", berth.Content{Type: "input_text", Text: "B."}),
			message("system", berth.Content{Type: "input_text", Text: "C."}), user("hi")}}
		got := received(t, h, req)
		if got.System != "A.\n\nB.\n\nC." {
			t.Errorf("got %q", got.System)
		}
		wantMessages(t, got, Message{Role: "user", Text: "hi"})
	}},
	{name: "short forms of messages", run: func(t *testing.T, h Harness) {
		req := &model.Request{Model: "double-1",
			Items: []berth.Item{raw(`{"role":"user","content":"one"}`), raw(`{"role":"assistant","content":"1"}`),
				message("user", berth.Content{Type: "input_text", Text: "a"}, berth.Content{Type: "input_text",
					Text: "b"})}}
		wantMessages(t, received(t, h, req), Message{Role: "user", Text: "one"}, Message{Role: "assistant", Text: "1"},
			Message{Role: "user", Text: "a\nb"})
	}},
	{name: "a call and its output", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		req.Items = append(req.Items, assistant("Let me see."), call("c1", "shell", `{"commands":["ls"]}`),
			output("c1", "file"), assistant("One file."), user("thanks"))
		wantMessages(t, received(t, h, req), Message{Role: "user", Text: "hi"},
			Message{Role: "assistant", Text: "Let me see.", Calls: []Call{{"c1", "shell", `{"commands":["ls"]}`}}},
			Message{Role: "tool", CallID: "c1", Text: "file"},
			Message{Role: "assistant", Text: "One file."}, Message{Role: "user", Text: "thanks"})
	}},
	{name: "calls of one turn are answered together, in their order", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		req.Items = append(req.Items, call("c1", "now", `{}`), assistant("And:"), call("c2", "now", ``),
			output("c2", "two"), output("c1", "one"))
		wantMessages(t, received(t, h, req), Message{Role: "user", Text: "hi"},
			Message{Role: "assistant", Text: "And:", Calls: []Call{{"c1", "now", `{}`}, {"c2", "now", `{}`}}},
			Message{Role: "tool", CallID: "c1", Text: "one"}, Message{Role: "tool", CallID: "c2", Text: "two"})
	}},
	{name: "calls of several turns are separate", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		req.Items = append(req.Items, call("c1", "now", `{}`), output("c1", "one"), call("c2", "now", `{}`),
			output("c2", "two"))
		wantMessages(t, received(t, h, req), Message{Role: "user", Text: "hi"},
			Message{Role: "assistant", Calls: []Call{{"c1", "now", `{}`}}}, Message{Role: "tool", CallID: "c1",
				Text: "one"},
			Message{Role: "assistant", Calls: []Call{{"c2", "now", `{}`}}}, Message{Role: "tool", CallID: "c2",
				Text: "two"})
	}},
	{name: "a call without output", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		req.Items = append(req.Items, call("c1", "now", `{}`), call("c2", "now", `{}`), output("c2", "two"),
			user("and?"))
		got := received(t, h, req).Messages
		if len(got) != 5 || got[2].CallID != "c1" || !strings.Contains(got[2].Text, "interrupted") ||
			got[3].Text != "two" {
			t.Errorf("got %+v", got)
		}
	}},
	{name: "an output without its call", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		req.Items = append(req.Items, output("c9", "lost and found"), call("c1", "now", `{}`), output("c1", "one"),
			output("c1", "one again"))
		got := merged(received(t, h, req).Messages)
		if len(got) != 4 || !strings.Contains(got[0].Text, "lost and found") || got[2].Text != "one" ||
			!strings.Contains(got[3].Text, "one again") {
			t.Errorf("got %+v", got)
		}
	}},
	{name: "an output after the user's message", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		req.Items = append(req.Items, call("c1", "now", `{}`), user("still there?"), output("c1", "one"))
		wantMessages(t, received(t, h, req), Message{Role: "user", Text: "hi"}, Message{Role: "assistant",
			Calls: []Call{{"c1", "now", `{}`}}},
			Message{Role: "tool", CallID: "c1", Text: "one"}, Message{Role: "user", Text: "still there?"})
	}},
	{name: "two calls with one id", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		req.Items = append(req.Items, call("c1", "now", `{}`), output("c1", "one"), call("c1", "now", `{}`),
			call("c1", "now", `{}`), output("c1", "two"), output("c1", "three"))
		var texts []string
		for _, m := range received(t, h, req).Messages {
			if m.Role == "tool" {
				texts = append(texts, m.Text)
			}
		}
		if diff := cmp.Diff([]string{"one", "two", "three"}, texts); diff != "" {
			t.Errorf("outputs (-want +got):\n%s", diff)
		}
	}},
	{name: "ids that are too long for the vendor", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		id := berth.NewID(berth.PrefixCall) + strings.Repeat("x", 200)
		req.Items = append(req.Items, call(id, "now", `{}`), output(id, "one"))
		first, again := received(t, h, req).Messages, received(t, h, req).Messages
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("sent differently the second time, which defeats caches (-first +again):\n%s", diff)
		}
	}},
	{name: "arguments that are not a JSON object", run: func(t *testing.T, h Harness) {
		for _, arguments := range []string{`{"commands":["l`, `null`, `["a"]`, `"x"`, "\xff"} {
			req := withTools("hi")
			req.Items = append(req.Items, call("c1", "shell", arguments), output("c1", "The arguments are not valid."))
			received(t, h, req) // the double refuses arguments that do not parse
		}
	}},
	{name: "an output with an image", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		req.Items = append(req.Items, call("c1", "now", `{}`), call("c2", "now", `{}`),
			raw(`{"type":"function_call_output","call_id":"c1","output":[{"type":"input_text","text":"the chart"},{"type":"input_image","image_url":"`+image+`"}]}`),
			output("c2", "two"))
		var text string
		var images []string
		for _, m := range received(t, h, req).Messages {
			if m.CallID == "c1" {
				text = m.Text
			}
			images = append(images, m.Images...)
		}
		if !strings.Contains(text, "the chart") || len(images) != 1 || images[0] != image {
			t.Errorf("got %q and %q", text, images)
		}
	}},
	{name: "items of other providers", run: func(t *testing.T, h Harness) {
		req := newRequest("hi")
		if !h.lacks(ModelBinding) { // it is not the vendor of this item
			req.Items = append(req.Items,
				raw(`{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Hm."}],"encrypted_content":"gAAAA"}`))
		}
		req.Items = append(req.Items,
			raw(`{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"`+dialogue.Seal("another vendor",
				"double-1", "signed")+`"}`),
			raw(`{"type":"web_search_call","id":"ws_1","status":"completed"}`),
			message("assistant", berth.Content{Type: "refusal", Refusal: "I cannot."}),
			message("assistant", berth.Content{Type: "output_text"}), user("why?"))
		wantMessages(t, received(t, h, req), Message{Role: "user", Text: "hi"}, Message{Role: "assistant",
			Text: "I cannot."}, Message{Role: "user", Text: "why?"})
	}},
	{name: "a system message in the middle", run: func(t *testing.T, h Harness) {
		req := newRequest("one")
		req.Instructions = "Be brief."
		req.Items = append(req.Items, assistant("1"), message("developer", berth.Content{Type: "input_text",
			Text: "Be loud."}), user("two"))
		got := received(t, h, req)
		var later string
		for _, m := range got.Messages[2:] {
			later += m.Text + "\n"
		}
		if got.System != "Be brief." || !strings.Contains(later, "Be loud.") || !strings.HasSuffix(later, "two\n") {
			t.Errorf("got %q and then %q", got.System, later)
		}
	}},
	{name: "a conversation that starts and ends with the model", run: func(t *testing.T, h Harness) {
		req := &model.Request{Model: "double-1", Items: []berth.Item{assistant("Hello."), user("one"), assistant("1")}}
		var texts []string
		for _, m := range received(t, h, req).Messages {
			if m.Role == "assistant" {
				texts = append(texts, m.Text)
			}
		}
		if diff := cmp.Diff([]string{"Hello.", "1"}, texts); diff != "" {
			t.Errorf("the model's texts (-want +got):\n%s", diff)
		}
	}},
	{name: "empty texts", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		req.Items = append(req.Items, assistant(""), user(" \n"), call("c1", "now", "{}"), output("c1", ""),
			assistant(" "), user(""))
		received(t, h, req) // the double refuses what its vendor refuses
	}},
	{name: "a call with an invalid name", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		req.Items = append(req.Items, call("c1", "now.(sh é", "{}"), output("c1", "There is no such function."),
			call("c2", strings.Repeat("n", 300), "{}"), output("c2", "Nor this."))
		received(t, h, req)
	}},
	{name: "ids with odd characters", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		req.Items = append(req.Items, call("functions.now:0", "now", "{}"), call("é", "now", "{}"), output("é", "two"),
			output("functions.now:0", "one"))
		var texts []string
		for _, m := range received(t, h, req).Messages {
			if m.Role == "tool" {
				texts = append(texts, m.Text)
			}
		}
		if diff := cmp.Diff([]string{"one", "two"}, texts); diff != "" {
			t.Errorf("outputs (-want +got):\n%s", diff)
		}
	}},
	{name: "a long conversation", run: func(t *testing.T, h Harness) {
		req := withTools("hi")
		for i := range 300 {
			id := fmt.Sprintf("call_%d", i)
			req.Items = append(req.Items, call(id, "now", `{}`), output(id, id), assistant("."), user("go on"))
		}
		if got := received(t, h, req).Messages; len(got) != 1+4*300 {
			t.Errorf("got %d messages, want %d", len(got), 1+4*300)
		}
	}},
}

func wantMessages(t *testing.T, got *Request, want ...Message) {
	t.Helper()
	if diff := cmp.Diff(merged(want), merged(got.Messages), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// merged returns the messages with adjacent user messages joined: some vendors do not
// accept two turns of one side.
func merged(messages []Message) []Message {
	var out []Message
	for _, m := range messages {
		if n := len(out) - 1; n >= 0 && m.Role == "user" && out[n].Role == "user" {
			last := &out[n]
			last.Text = strings.Trim(last.Text+"\n"+m.Text, "\n")
			last.Images, last.Files = slices.Concat(last.Images, m.Images), slices.Concat(last.Files, m.Files)
			continue
		}
		out = append(out, m)
	}
	return out
}
