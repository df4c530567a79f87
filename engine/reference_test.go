package engine_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
)

// A client may refer to any stored item by its id alone, as the AI SDK does with output of
// the model.
func TestReferences(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("one"), call("call_1", "add", `{}`), say("three"), say("four"))
		first := h.final(h.create(`{` + withClients + `,"input":"a"}`).ID)
		second := h.final(h.create(`{` + withClients + `,"input":"b"}`).ID)
		ref := func(it berth.Item) string { return `{"type":"item_reference","id":"` + it.ID() + `"}` }
		third := h.final(h.create(`{` + withClients + `,"input":[{"role":"user","content":"a"},` + ref(first.Output[0]) + `,` + ref(second.Output[0]) + `,
		{"type":"function_call_output","call_id":"call_1","output":"2"}]}`).ID)
		seen := h.model.requests[2].Items
		if len(seen) != 4 || !strings.Contains(string(seen[1].Raw()), `"one"`) || seen[2].CallID() != "call_1" {
			t.Errorf("the model saw %s", asJSON(t, seen))
		}
		// What the chain has already is not there twice.
		h.final(h.create(`{` + withClients + `,"input":[` + ref(third.Output[0]) + `,` + ref(second.Output[0]) +
			`],"previous_response_id":"` + string(third.ID) + `"}`).ID)
		if n := len(h.model.requests[3].Items); n != 5 {
			t.Errorf("the model saw %d items, want 5", n)
		}

		gone := `{` + withClients + `,"input":[` + ref(first.Output[0]) + `]}`
		for _, try := range []struct {
			what   string
			body   string
			caller berth.Caller
			prior  func() error
		}{
			{"none", `{` + withClients + `,"input":[{"type":"item_reference","id":"msg_none"}]}`, caller, nil},
			{"another project's", gone, berth.Caller{Project: "proj_other"}, nil},
			{"a deleted response's", gone, caller, func() error {
				return h.engine.Delete(t.Context(), caller, first.ID)
			}},
		} {
			if try.prior != nil {
				if err := try.prior(); err != nil {
					t.Fatal(err)
				}
			}
			var req berth.ResponseRequest
			if err := json.Unmarshal([]byte(try.body), &req); err != nil {
				t.Fatal(err)
			}
			_, err := h.engine.Create(t.Context(), try.caller, &req)
			e, ok := errors.AsType[*berth.Error](err)
			if !ok || e.Code != berth.CodeNotFound || e.Param != "input" || !strings.HasPrefix(e.Message,
				"Item with id 'msg_") {
				t.Errorf("%s: got %v", try.what, err)
			}
		}
		h.model.turns = []turn{say("again")}
		again := h.final(h.create(`{"model":"played","input":[` + ref(third.Output[0]) +
			`,{"role":"user","content":"so?"}]}`).ID)
		if diff := cmp.Diff([]string{"message completed again"}, outline(t, again.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}
