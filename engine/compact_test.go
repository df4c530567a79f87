package engine_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

const compacting = `"model":"played","context_management":[{"type":"compaction","compact_threshold":1000}]`

// seenBy returns what a model sees of items, in short: the roles and the first words.
func seenBy(t *testing.T, items []berth.Item) []string {
	t.Helper()
	var out []string
	for _, it := range items {
		line := string(it.Type())
		if it.Type() == berth.ItemMessage {
			var m berth.Message
			decode(t, it, &m)
			text := m.Content[0].Text
			if _, summary, ok := strings.Cut(text, "need not be done again.\n\n"); ok {
				text = "summary: " + summary
			}
			line = m.Role + " " + strings.Join(strings.Fields(text)[:min(2, len(strings.Fields(text)))], " ")
		}
		out = append(out, line)
	}
	return out
}

// The order of events and the shape of the item are those recorded from the hosted
// service: the answer first, then the compaction.
func TestCompactionAfterTheAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("an answer"), say("SUM one"), say("another"))
		first := h.final(h.create(`{` + compacting +
			`,"instructions":"Be brief.","tools":[{"type":"function","name":"f"}],"input":[` + user("a", 1500) +
			`]}`).ID)
		events := h.events(first.ID)
		want := []string{"response.created", "response.in_progress", "response.output_item.added",
			"response.content_part.added",
			"response.output_text.delta", "response.output_text.done", "response.content_part.done",
			"response.output_item.done",
			"response.output_item.added", "response.output_item.done", "response.completed"}
		if diff := cmp.Diff(want, types(events)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		it := first.Output[len(first.Output)-1]
		var fields map[string]string
		decode(t, it, &fields)
		if len(first.Output) != 2 || len(fields) != 3 || fields["type"] != "compaction" ||
			!strings.HasPrefix(fields["id"], "cmp_") || strings.Contains(asJSON(t, it), "SUM one") {
			t.Errorf("got %v", fields)
		}
		if first.Usage.TotalTokens != 30 {
			t.Errorf("got usage %+v, want that of both turns", first.Usage)
		}
		asked := h.model.requests[1]
		if got := seenBy(t, asked.Items); len(got) != 3 || got[0] != "user a" && got[0] != "user a word" ||
			got[1] != "assistant an answer" || got[2] != "user The conversation" {
			t.Errorf("to be summed up: %q", got)
		}
		if asked.ToolChoice.Mode != "none" || len(asked.Tools) != 1 || asked.Instructions != "Be brief." {
			t.Errorf("asked with %+v, %d tools, %q", asked.ToolChoice, len(asked.Tools), asked.Instructions)
		}

		h.final(h.create(`{"model":"played","previous_response_id":"` + string(first.ID) + `","input":[` + user("b",
			2) + `]}`).ID)
		if diff := cmp.Diff([]string{"user a word", "user summary: SUM", "user b word"},
			seenBy(t, h.model.requests[2].Items)); diff != "" {
			t.Errorf("the chain after it (-want +got):\n%s", diff)
		}
		if kept := model.EstimateItem(h.model.requests[2].Items[0]); kept < 200 || kept > 300 {
			t.Errorf("of the user's message %d tokens are kept, want about a quarter of the threshold", kept)
		}
	})
}

// A client that stores its items may send all of them, or those from the compaction on.
// The model sees the same.
func TestCompactionCarriedByTheClient(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("an answer"), say("SUM one"), say("another"), say("another"))
		developer := `{"id":"msg_dev","type":"message","role":"developer","status":"completed","content":[{"type":"input_text","text":"Be kind."}]}`
		input := developer + "," + user("a", 100) + "," + called("x", 1000) + "," + user("b", 10)
		first := h.final(h.create(`{` + compacting + `,"input":[` + input + `]}`).ID)
		answer, compaction := string(first.Output[0].Raw()), string(first.Output[1].Raw())
		for i, input := range []string{
			input + "," + answer + "," + compaction + "," + user("c", 1),
			compaction + "," + user("c", 1),
		} {
			h.final(h.create(`{"model":"played","store":true,"input":[` + input + `]}`).ID)
			want := []string{"developer Be kind.", "user a word", "user b word", "user summary: SUM", "user c word"}
			if diff := cmp.Diff(want, seenBy(t, h.model.requests[2+i].Items)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	})
}

// After a compaction between turns, the next turn continues from the summary.
func TestCompactionBetweenTurns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, shell("call_1", `{"commands":["ls"]}`), say("SUM one"),
			shell("call_2", `{"commands":["pwd"]}`), say("done"))
		h.containers.commands["ls"] = func(c *fakeCall) { c.print(words(1500)); c.exit(0) }
		got := h.final(h.create(`{` + compacting + `,` + withShell[len(`"model":"played",`):] + `,"input":[` + user("a",
			100) + `]}`).ID)
		var kinds []string
		for _, it := range got.Output {
			kinds = append(kinds, string(it.Type()))
		}
		if diff := cmp.Diff([]string{"shell_call", "shell_call_output", "compaction", "shell_call", "shell_call_output",
			"message"}, kinds); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"user a word", "user summary: SUM"},
			seenBy(t, h.model.requests[2].Items)); diff != "" {
			t.Errorf("the turn after it (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"user a word", "user summary: SUM", "function_call", "function_call_output"},
			seenBy(t, h.model.requests[3].Items)); diff != "" {
			t.Errorf("the turn after that (-want +got):\n%s", diff)
		}
	})
}

// Calls that wait for the client are not summarised. The response with their outputs is
// compacted before its first turn.
func TestCompactionOfTheClientsCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{model.Call{ID: "call_1", Name: "f", Arguments: "{}"}}, say("SUM one"), say("done"))
		const function = `,"tools":[{"type":"function","name":"f"}]`
		first := h.final(h.create(`{` + compacting + function + `,"input":[` + user("a", 1500) + `]}`).ID)
		if len(first.Output) != 1 || len(h.model.requests) != 1 {
			t.Errorf("the first response has %v after %d turns", outline(t, first.Output), len(h.model.requests))
		}
		second := h.final(h.create(`{` + compacting + function + `,"previous_response_id":"` + string(first.ID) +
			`","input":[{"id":"fco_1","type":"function_call_output","status":"completed","call_id":"call_1","output":"found"}]}`).ID)
		if len(second.Output) != 2 || second.Output[0].Type() != berth.ItemCompaction {
			t.Errorf("the second response has %v", outline(t, second.Output))
		}
		if diff := cmp.Diff([]string{"user a word", "user summary: SUM"},
			seenBy(t, h.model.requests[2].Items)); diff != "" {
			t.Errorf("the turn after it (-want +got):\n%s", diff)
		}
	})
}

// A context that the upstream refuses as too long is compacted.
func TestCompactionForRoom(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tooLong := turn{model.TooLong("")}
		h := newHouse(t, tooLong, tooLong, say("SUM one"), say("done"))
		input := user("a", 400) + "," + assistantMessage("b", 100) + "," + user("c", 10)
		got := h.final(h.create(`{"model":"played","context_management":[{"type":"compaction"}],"input":[` + input +
			`]}`).ID)
		if got.Status != berth.StatusCompleted || len(got.Output) != 2 || got.Output[0].Type() != berth.ItemCompaction {
			t.Errorf("got %s with %v", got.Status, outline(t, got.Output))
		}
		if seen := seenBy(t, h.model.requests[2].Items); len(seen) != 2 {
			t.Errorf("to be summed up after a refusal: %v, want less", seen)
		}
		if diff := cmp.Diff([]string{"user c word", "user summary: SUM"},
			seenBy(t, h.model.requests[3].Items)[1:]); diff != "" {
			t.Errorf("the turn after it (-want +got):\n%s", diff)
		}
	})
}

// A context that exceeds a known window is compacted before the first turn.
func TestCompactionInAKnownWindow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("SUM one"), say("done"))
		h.model.window = 2000
		got := h.final(h.create(`{"model":"played","context_management":[{"type":"compaction"}],"input":[` + user("a",
			3000) + "," + assistantMessage("b", 100) + "," + user("c", 10) + `]}`).ID)
		if got.Status != berth.StatusCompleted || len(got.Output) != 2 || got.Output[0].Type() != berth.ItemCompaction {
			t.Errorf("got %s with %v", got.Status, outline(t, got.Output))
		}
	})
}

// The answer survives a failed compaction.
func TestCompactionFails(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		refusal := turn{berth.Invalid("input", "No.")}
		h := newHouse(t, say("an answer"), refusal)
		got := h.final(h.create(`{` + compacting + `,"input":[` + user("a", 1500) + `]}`).ID)
		if diff := cmp.Diff([]string{"message completed an answer"}, outline(t, got.Output)); diff != "" ||
			got.Status != berth.StatusCompleted {
			t.Errorf("got %s (-want +got):\n%s", got.Status, diff)
		}
	})
}

// A crash between the answer and its compaction loses neither and repeats neither.
func TestCompactionAfterACrash(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("an answer"), turn{hang{}})
		r := h.create(`{` + compacting + `,"background":true,"input":[` + user("a", 1500) + `]}`)
		h.waitFor(r.ID, berth.EventOutputItemDone)
		h.stop()
		h.model.turns = []turn{say("SUM one")}
		h.start()
		if err := h.engine.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := h.final(r.ID)
		if got.Status != berth.StatusCompleted || len(got.Output) != 2 || got.Output[1].Type() != berth.ItemCompaction {
			t.Errorf("got %s with %v", got.Status, outline(t, got.Output))
		}
	})
}

// Compactions that this server has not sealed for this project are refused.
func TestForeignCompaction(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("an answer"), say("SUM one"))
		first := h.final(h.create(`{` + compacting + `,"input":[` + user("a", 1500) + `]}`).ID)
		var c berth.Compaction
		decode(t, first.Output[1], &c)
		try := func(caller berth.Caller, content string) error {
			_, err := h.engine.Create(t.Context(), caller, &berth.ResponseRequest{Model: "played",
				Input: berth.Input{berth.NewItem(berth.Compaction{ID: "cmp_1", Type: berth.ItemCompaction,
					EncryptedContent: content})}})
			return err
		}
		for name, err := range map[string]error{
			"altered":         try(caller, c.EncryptedContent[:len(c.EncryptedContent)-2]+"xx"),
			"foreign":         try(caller, "gAAAAABplLP75yhVf0v4856Geb"),
			"another project": try(berth.Caller{Project: "proj_other"}, c.EncryptedContent),
		} {
			if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != berth.CodeInvalid ||
				e.Wire != "invalid_encrypted_content" {
				t.Errorf("%s: got %v", name, err)
			}
		}
		if err := try(caller, c.EncryptedContent); err != nil {
			t.Errorf("its own: %v", err)
		}
	})
}

// Compact returns a context that a client can continue from, as a whole or from its
// compaction on.
func TestCompact(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("SUM one"), say("done"), say("done"))
		var req berth.ResponseRequest
		req.Model = "played"
		if err := req.Input.UnmarshalJSON([]byte(`[` + user("a", 10) + "," + assistantMessage("b", 10) + "," +
			called("x", 10) + "," + user("c", 10) + `]`)); err != nil {
			t.Fatal(err)
		}
		got, err := h.engine.Compact(t.Context(), caller, &req)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Output) != 3 || ids(got.Output[:2]) != "msg_a msg_c" ||
			got.Output[2].Type() != berth.ItemCompaction || got.Usage.TotalTokens != 15 ||
			got.Object != "response.compaction" {
			t.Errorf("got %s", asJSON(t, got))
		}
		for i, output := range [][]berth.Item{got.Output, got.Output[2:]} {
			var input []string
			for _, it := range output {
				input = append(input, string(it.Raw()))
			}
			h.final(h.create(`{"model":"played","input":[` + strings.Join(input, ",") + "," + user("d", 1) + `]}`).ID)
			if diff := cmp.Diff([]string{"user a word", "user c word", "user summary: SUM", "user d word"},
				seenBy(t, h.model.requests[1+i].Items)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		// What the client leaves out of the window or puts into it stays so.
		h.model.turns = []turn{say("done")}
		h.final(h.create(`{"model":"played","input":[` + user("new", 1) + "," + string(got.Output[2].Raw()) + `]}`).ID)
		if diff := cmp.Diff([]string{"user new word", "user summary: SUM"},
			seenBy(t, h.model.requests[3].Items)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A summary is requested again after a temporary error, and an empty one is an error.
func TestCompactRetries(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{berth.Errorf(berth.CodeUpstream, "down")},
			turn{model.Call{ID: "call_1", Name: "f", Arguments: "{}"}}, say("SUM one"))
		req := &berth.ResponseRequest{Model: "played",
			Input: berth.Input{berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: "user",
				Content: []berth.Content{{Type: "input_text", Text: "hi"}}})}}
		got, err := h.engine.Compact(t.Context(), caller, req)
		if err != nil || len(h.model.requests) != 3 || got.Usage.TotalTokens != 30 {
			t.Errorf("got %+v, %v after %d turns", got, err, len(h.model.requests))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		h.model.turns = []turn{{hang{}}}
		if _, err := h.engine.Compact(ctx, caller, req); !errors.Is(err, context.Canceled) {
			t.Errorf("for a client that left: got %v", err)
		}
	})
}

// A trigger compacts immediately, without an answer. A client that builds its own context
// decides which items precede the compaction; a chain continues from it.
func TestCompactionTrigger(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("SUM one"), say("done"), say("done"))
		const trigger = `{"id":"item_1","type":"compaction_trigger"}`
		input := user("a", 10) + "," + assistantMessage("b", 10)
		got := h.final(h.create(`{"model":"played","input":[` + input + "," + trigger + `]}`).ID)
		if got.Status != berth.StatusCompleted || len(got.Output) != 1 || got.Output[0].Type() != berth.ItemCompaction {
			t.Fatalf("got %s with %v", got.Status, outline(t, got.Output))
		}
		if n := len(h.model.requests[0].Items); n != 3 {
			t.Errorf("to be summed up: %d items, want two and the prompt", n)
		}
		compaction := string(got.Output[0].Raw())
		for i, request := range []string{
			`"input":[` + user("mine", 1) + "," + compaction + "," + user("c", 1) + `]`,
			`"previous_response_id":"` + string(got.ID) + `","input":[` + user("c", 1) + `]`,
		} {
			h.final(h.create(`{"model":"played",` + request + `}`).ID)
			want := []string{[]string{"user mine word", "user a word"}[i], "user summary: SUM", "user c word"}
			if diff := cmp.Diff(want, seenBy(t, h.model.requests[1+i].Items)); diff != "" {
				t.Errorf("%d (-want +got):\n%s", i, diff)
			}
		}
		h.model.turns = []turn{{berth.Invalid("input", "No.")}}
		if got := h.final(h.create(`{"model":"played","input":[` + input + "," + trigger +
			`]}`).ID); got.Status != berth.StatusFailed {
			t.Errorf("without a summary: got %s", got.Status)
		}
	})
}
