package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// words is a text of n tokens.
func words(n int) string { return strings.TrimSpace(strings.Repeat("word ", n)) }

// user returns an input message of n tokens that starts with a name.
func user(name string, n int) string {
	return fmt.Sprintf(
		`{"id":"msg_%s","type":"message","role":"user","status":"completed","content":[{"type":"input_text","text":"%s %s"}]}`,
		name, name, words(n))
}

func assistantMessage(name string, n int) string {
	return fmt.Sprintf(
		`{"id":"msg_%s","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"%s %s"}]}`,
		name, name, words(n))
}

// called is a function call and its output of n tokens.
func called(id string, n int) string {
	return fmt.Sprintf(
		`{"id":"fc_%s","type":"function_call","status":"completed","call_id":"%[1]s","name":"f","arguments":"{}"},`+
			`{"id":"fco_%[1]s","type":"function_call_output","status":"completed","call_id":"%[1]s","output":"%[2]s"}`,
		id, words(n))
}

// ids are the ids of items, in short.
func ids(items []berth.Item) string {
	var out []string
	for _, it := range items {
		out = append(out, it.ID())
	}
	return strings.Join(out, " ")
}

func TestTruncation(t *testing.T) {
	t.Parallel()
	developer := `{"id":"msg_dev","type":"message","role":"developer","status":"completed","content":[{"type":"input_text","text":"Be kind."}]}`
	tests := []struct {
		name   string
		window int
		fields string
		input  []string
		want   string
	}{
		{"all fits", 4000, "", []string{user("a", 100), assistantMessage("b", 100), user("c", 100)},
			"msg_a msg_b msg_c"},
		{"unknown", 0, "", []string{user("a", 5000), assistantMessage("b", 5000), user("c", 5000)},
			"msg_a msg_b msg_c"},
		{"oldest first", 1000, "", []string{user("a", 300), assistantMessage("b", 300), user("c", 300),
			assistantMessage("d", 300), user("e", 200)}, "msg_c msg_d msg_e"},
		{"begins with the user", 1000, "", []string{user("a", 700), assistantMessage("b", 10), user("c", 10),
			assistantMessage("d", 300), user("e", 200)}, "msg_c msg_d msg_e"},
		{"room for the answer", 1000, `,"max_output_tokens":500`,
			[]string{user("a", 300), assistantMessage("b", 10), user("c", 300)}, "msg_c"},
		{"developer's words stay", 1000, "",
			[]string{developer, user("a", 900), assistantMessage("b", 10), user("c", 300)}, "msg_dev msg_c"},
		{"a call goes with its output", 1000, "", []string{user("a", 10), called("x", 500), called("y", 500)},
			"msg_a fc_y fco_y"},
		{"calls side by side", 1000, "", []string{user("a", 10), called("x", 10), user("b", 600), called("y", 500)},
			"msg_b fc_y fco_y"},
		{"the task stays", 1000, "", []string{user("a", 500), called("x", 300), called("y", 300), called("z", 200)},
			"msg_a fc_z fco_z"},
		{"no more to drop", 1000, "", []string{user("a", 10), assistantMessage("b", 10), user("c", 2000)}, "msg_c"},
	}
	for _, tt := range tests {
		runInBubble(t, tt.name, func(t *testing.T) {
			h := newHouse(t, say("done"))
			h.model.window = tt.window
			got := h.final(h.create(`{"model":"played","truncation":"auto"` + tt.fields + `,"input":[` +
				strings.Join(tt.input, ",") + `]}`).ID)
			if got.Status != berth.StatusCompleted || got.Truncation != "auto" {
				t.Errorf("got %s, truncation %s", got.Status, got.Truncation)
			}
			if got := ids(h.model.requests[0].Items); got != tt.want {
				t.Errorf("the model saw %s, want %s", got, tt.want)
			}
		})
	}
}

// Dropped items stay in the history: a response with room for them shows them again.
func TestTruncationForgetsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("one"), say("two"))
		h.model.window = 1000
		first := h.final(h.create(`{"model":"played","truncation":"auto","input":[` + user("a", 900) + "," +
			assistantMessage("b", 10) + "," + user("c", 10) + `]}`).ID)
		h.model.window = 8000
		h.final(h.create(`{"model":"played","truncation":"auto","previous_response_id":"` + string(first.ID) +
			`","input":[` + user("d", 10) + `]}`).ID)
		want := "msg_a msg_b msg_c " + first.Output[0].ID() + " msg_d"
		if got := ids(h.model.requests[1].Items); got != want {
			t.Errorf("the model saw %s, want %s", got, want)
		}
	})
}

// A refusal teaches how much the model takes, for this turn and those that follow.
func TestTruncationAfterRefusal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		tooLong := turn{model.TooLong("")}
		h := newHouse(t, tooLong, tooLong, shell("call_1", `{"commands":["ls"]}`), say("done"))
		var input []string
		for i := range 9 {
			input = append(input, user(fmt.Sprint(i), 100))
		}
		got := h.final(h.create(`{` + withShell + `,"truncation":"auto","input":[` + strings.Join(input, ",") +
			`]}`).ID)
		if diff := cmp.Diff([]string{"shell_call completed ls", "shell_call_output completed [ls ran exit 0]",
			"message completed done"}, outline(t, got.Output)); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
		var seen []int
		for _, req := range h.model.requests {
			seen = append(seen, len(req.Items))
		}
		if seen[0] != 9 || seen[1] >= seen[0] || seen[2] >= seen[1] || seen[3] > seen[2]+2 {
			t.Errorf("the model saw %v items, want fewer after each refusal, and no more again", seen)
		}
		if last := h.model.requests[3].Items; last[len(last)-1].Type() != berth.ItemFunctionCallOutput {
			t.Errorf("the last turn does not see the output: %s", ids(last))
		}
	})
}

// Asking with less is bounded, and without truncation it is not done at all.
func TestTooLong(t *testing.T) {
	t.Parallel()
	for truncation, turns := range map[string]int{"auto": 7, "disabled": 1} {
		runInBubble(t, truncation, func(t *testing.T) {
			var refusals []turn
			for range 20 {
				refusals = append(refusals, turn{model.TooLong("")})
			}
			h := newHouse(t, refusals...)
			var input []string
			for i := range 100 {
				input = append(input, user(fmt.Sprint(i), 20))
			}
			r := h.create(`{"model":"played","truncation":"` + truncation + `","input":[` + strings.Join(input, ",") +
				`]}`)
			got := h.final(r.ID)
			if got.Status != berth.StatusFailed || got.Error == nil || got.Error.Code != "context_length_exceeded" {
				t.Errorf("got %s, %+v", got.Status, got.Error)
			}
			if asked := len(h.model.requests); asked != turns {
				t.Errorf("the model was called %d times, want %d", asked, turns)
			}
			want := []string{"response.created", "response.in_progress", "error", "response.failed"}
			if diff := cmp.Diff(want, types(h.events(r.ID))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// A context that is known to be too long is refused before a response is created.
func TestTooLongBeforehand(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, say("done"))
		h.model.window = 1000
		_, err := h.tryCreate(t.Context(), `{"model":"played","input":[`+user("a", 900)+","+assistantMessage("b",
			900)+","+user("c", 9)+`]}`)
		e, ok := errors.AsType[*berth.Error](err)
		if !ok || e.Code != berth.CodeInvalid || e.Wire != "context_length_exceeded" || e.Param != "input" ||
			len(h.model.requests) != 0 {
			t.Errorf("got %v after %d turns", err, len(h.model.requests))
		}
		// An estimate that is near is not knowledge: the upstream decides.
		got := h.final(h.create(`{"model":"played","input":[` + user("a", 1100) + `]}`).ID)
		if got.Status != berth.StatusCompleted {
			t.Errorf("got %s", got.Status)
		}
	})
}
