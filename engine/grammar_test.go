package engine_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
)

const withGrammar = `"model":"played","tools":[
	{"type":"custom","name":"sql","format":{"type":"grammar","syntax":"lark","definition":"start: \"SELECT \" NAME \";\"\nNAME: /[a-z]+/"}},
	{"type":"custom","name":"date","format":{"type":"grammar","syntax":"regex","definition":"\\d{4}-\\d\\d"}}]`

// Input that does not match its grammar is never shown. The model learns the place of the
// mistake and calls again.
func TestGrammar(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, function, wrong, want, right string }{
		{"lark", "sql", "SELECT 1;", `line 1, column 8: found \"1\", expected NAME`, "SELECT a;"},
		{"lark at the end", "sql", "SELECT a", `line 1, column 9: the input ends, expected \";\" or the rest of NAME`,
			"SELECT ab;"},
		{"regex", "date", "2026-1x", `line 1, column 7: found \"x\"`, "2026-11"},
	} {
		runInBubble(t, tc.name, func(t *testing.T) {
			input := func(text string) string { return fmt.Sprintf(`{"input":%q}`, text) }
			h := newHouse(t, call("call_1", tc.function, input(tc.wrong)), call("call_2", tc.function, input(tc.right)))
			id := h.create(`{` + withGrammar + `,"input":"x"}`).ID
			r := h.final(id)
			if diff := cmp.Diff([]string{"custom_tool_call completed"},
				outline(t, r.Output)); r.Status != berth.StatusCompleted || diff != "" {
				t.Fatalf("status %s, output (-want +got):\n%s", r.Status, diff)
			}
			var made berth.CustomToolCall
			if err := r.Output[0].Decode(&made); err != nil || made.Input != tc.right || made.CallID != "call_2" {
				t.Errorf("the call is %s", r.Output[0])
			}
			if saw := asJSON(t, h.model.requests[1].Items); !strings.Contains(strings.ReplaceAll(saw, `\\\"`, `\"`),
				tc.want) {
				t.Errorf("the model saw %s, want %s", saw, tc.want)
			}
			var events []string
			for _, ev := range h.events(id) {
				if strings.Contains(string(ev.Type), "custom") || ev.Item != nil {
					events = append(events, string(ev.Type))
				}
			}
			want := []string{"response.output_item.added", "response.custom_tool_call_input.delta",
				"response.custom_tool_call_input.done", "response.output_item.done"}
			if diff := cmp.Diff(want, events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// A model that never matches the grammar fails the response after a number of turns.
func TestGrammarForEver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var turns []turn
		for i := range 20 {
			turns = append(turns, call(fmt.Sprint("call_", i), "sql", `{"input":"DROP"}`))
		}
		h := newHouse(t, turns...)
		r := h.final(h.create(`{` + withGrammar + `,"input":"x"}`).ID)
		if r.Status != berth.StatusFailed || !strings.Contains(r.Error.Message, "does not match the tool's grammar") ||
			len(r.Output) != 0 {
			t.Errorf("status %s, error %v, output %v", r.Status, r.Error, r.Output)
		}
		if got := len(h.model.requests); got != 5 {
			t.Errorf("the model was called %d times, want 5", got)
		}
	})
}

// A grammar that cannot be used is refused before the model is called.
func TestInvalidGrammar(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t)
		_, err := h.tryCreate(t.Context(),
			`{"model":"played","input":"x","tools":[{"type":"custom","name":"c","format":{"type":"grammar","syntax":"lark","definition":"start: A"}}]}`)
		e, ok := err.(*berth.Error)
		if !ok || e.Code != berth.CodeInvalid || e.Param != "tools[0].format.definition" || !strings.Contains(e.Message,
			`line 1, column 8: "A" is not defined`) {
			t.Errorf("error %v", err)
		}
	})
}

// largeGrammar is a grammar of about 40 KB and 40,000 states.
func largeGrammar() string {
	var words []string
	for i := range 1700 {
		words = append(words, fmt.Sprintf(`"kkkkkkkkkkkkkkkkkkkk%04d"`, i))
	}
	return "start: " + strings.Join(words, "|")
}

// A request with a hundred large grammars is refused before they take the memory. The cached form of a
// large grammar is its text, and it is enforced all the same.
func TestLargeGrammars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // not beside other tests, whose memory would count
		tools := func(n int) string {
			var all []string
			for i := range n {
				all = append(all,
					fmt.Sprintf(
						`{"type":"custom","name":"t%d","format":{"type":"grammar","syntax":"lark","definition":%q}}`, i,
						largeGrammar()))
			}
			return `"model":"played","input":"x","tools":[` + strings.Join(all, ",") + `]`
		}
		h := newHouse(t, call("call_1", "t0", `{"input":"kkkk"}`),
			call("call_2", "t0", `{"input":"kkkkkkkkkkkkkkkkkkkk1234"}`))
		if _, err := h.tryCreate(t.Context(), `{`+tools(100)+`}`); err == nil || !strings.Contains(err.Error(),
			"1048576 bytes together") {
			t.Errorf("a hundred large grammars: got %v", err)
		}

		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := h.create(`{` + tools(20) + `,"background":true}`)
		final := h.final(r.ID)
		var made berth.CustomToolCall
		if len(final.Output) != 1 || final.Output[0].Decode(&made) != nil || made.CallID != "call_2" {
			t.Errorf("got %s, want the call that matches", asJSON(t, final.Output))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
			t.Errorf("a request with 20 large grammars leaves %d MB", grown>>20)
		}
	})
}
