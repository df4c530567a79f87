package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
)

const withDeferred = `"model":"played","tools":[{"type":"function","name":"add"},
	{"type":"function","name":"tide","description":"Tells the tide.\n\nAt length.","defer_loading":true},
	{"type":"function","name":"mail","description":"Sends a letter.","defer_loading":true},
	{"type":"namespace","name":"crm","description":"Customers.","tools":[{"type":"custom","name":"note","description":"Adds a note.","defer_loading":true},{"type":"function","name":"list"}]},
	{"type":"tool_search"}]`

// The server searches the deferred tools. The model can call what it found in the next
// turn of the same response, and in those that continue it.
func TestServerToolSearch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, call("call_1", "tool_search", `{"paths":["tide"]}`), call("call_2", "tide", `{}`),
			call("call_3", "tool_search", `{"paths":["crm.note","nothing"]}`), call("call_4", "crm__note",
				`{"input":"x"}`), say("ok"))
		offered := func(turn int) string {
			var names []string
			for _, f := range h.model.requests[turn].Tools {
				names = append(names, f.Name)
			}
			return strings.Join(names, " ")
		}
		first := h.final(h.create(`{` + withDeferred + `,"input":"x"}`).ID)
		want := []string{"tool_search_call completed", "tool_search_output completed", "function_call completed tide{}"}
		if diff := cmp.Diff(want, outline(t, first.Output)); first.Status != berth.StatusCompleted || diff != "" {
			t.Fatalf("status %s, output (-want +got):\n%s", first.Status, diff)
		}
		for i, want := range []string{
			`{"type":"tool_search_call","status":"completed","arguments":{"paths":["tide"]},"call_id":null,"execution":"server"}`,
			`{"type":"tool_search_output","status":"completed","call_id":null,"execution":"server","tools":[{"type":"function","name":"tide","description":"Tells the tide.\n\nAt length.","defer_loading":true,"parameters":null,"strict":false}]}`,
		} {
			var got map[string]any
			decode(t, first.Output[i], &got)
			delete(got, "id")
			if !sameJSON(t, asJSON(t, got), want) {
				t.Errorf("item %d is %s, want %s", i, asJSON(t, got), want)
			}
		}
		if got, want := offered(0), "add crm__list tool_search"; got != want {
			t.Errorf("offered %q, want %q", got, want)
		}
		if got, want := offered(1), "add crm__list tool_search tide"; got != want {
			t.Errorf("offered %q, want %q", got, want)
		}
		const catalogue = "The tools by path:\n- tide: Tells the tide.\n- mail: Sends a letter.\n- crm: Customers. Its tools:\n  - note: Adds a note."
		if about := h.model.requests[0].Tools[2].Description; !strings.HasSuffix(about, catalogue) {
			t.Errorf("the description is %q", about)
		}
		var c berth.FunctionCall
		var o berth.FunctionCallOutput
		decode(t, h.model.requests[1].Items[1], &c)
		decode(t, h.model.requests[1].Items[2], &o)
		if c.CallID == "" || c.CallID != o.CallID || !strings.Contains(string(o.Output),
			"These can be called now: tide") {
			t.Errorf("the model saw %s and %s", h.model.requests[1].Items[1], h.model.requests[1].Items[2])
		}
		second := h.final(h.create(`{` + withDeferred + `,"previous_response_id":"` + string(first.ID) +
			`","input":[{"type":"function_call_output","call_id":"call_2","output":"high"}]}`).ID)
		want = []string{"tool_search_call completed", "tool_search_output completed", "custom_tool_call completed"}
		if diff := cmp.Diff(want, outline(t, second.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		if got, want := offered(3), "add crm__list tool_search tide crm__note"; got != want {
			t.Errorf("offered %q, want %q", got, want)
		}
	})
}

// A search by words finds the tools that have one of them; one without a result reports it.
func TestServerToolSearchByWords(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, call("call_1", "tool_search", `{"query":"a letter to Ada"}`), call("call_2", "tool_search",
			`{"paths":["weather"]}`),
			call("call_3", "tool_search", `{"paths":7}`), say("ok"))
		h.final(h.create(`{` + withDeferred + `,"input":"x"}`).ID)
		for turn, want := range map[int]string{1: "These can be called now: mail", 2: "No tools were found.",
			3: "No tools were found."} {
			items := h.model.requests[turn].Items
			if got := items[len(items)-1].String(); !strings.Contains(got, want) {
				t.Errorf("in turn %d the model saw %s, want %q", turn, got, want)
			}
		}
	})
}

// Items of the hosted service have no call_id. A client may send them back.
func TestServerToolSearchItems(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("ok"))
		h.final(h.create(`{` + withDeferred + `,"input":[
		{"type":"tool_search_call","call_id":null,"execution":"server","status":"completed","arguments":{"paths":["tide"]}},
		{"type":"tool_search_output","call_id":null,"execution":"server","status":"completed","tools":[{"type":"function","name":"tide","defer_loading":true}]}]}`).ID)
		if tools := asJSON(t, h.model.requests[0].Tools); !strings.Contains(tools, `"tide"`) {
			t.Errorf("the model was offered %s", tools)
		}
		if items := asJSON(t, h.model.requests[0].Items); strings.Count(items, `"call_id": "tool_search_call"`) != 2 {
			t.Errorf("the model saw %s", items)
		}
	})
}
