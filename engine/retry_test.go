package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

// Turns with temporary errors are retried within the configured limits. Final disables
// retries after the first delta.
func TestRetries(t *testing.T) {
	t.Parallel()
	down := &berth.Error{Code: berth.CodeUpstream, Message: "down"}
	later := model.WithRetryAfter(&berth.Error{Code: berth.CodeRateLimited, Message: "later"}, time.Hour)
	soon := model.WithRetryAfter(&berth.Error{Code: berth.CodeRateLimited, Message: "soon"}, time.Millisecond)
	open := model.WithRetryAfter(&berth.Error{Code: berth.CodeUpstream, Message: "left alone", Err: model.ErrNotSent},
		time.Millisecond)
	half := turn{model.Text{Text: "half"}, down}
	for name, tt := range map[string]struct {
		retry    engine.Retry
		turns    []turn
		calls    int
		attempts []int // nil is one with each time that the model is calls
		out      []string
		err      string
	}{
		"four times": {turns: []turn{{soon}, {soon}, {soon}, say("whole")}, calls: 4,
			out: []string{"message completed whole"}},
		"and no more": {turns: []turn{{soon}, {soon}, {soon}, {soon}}, calls: 4, err: "soon"},
		"twice": {retry: engine.Retry{Attempts: 2}, turns: []turn{{soon}, {soon}}, calls: 2,
			err: "soon"},
		"a circuit that is open": {turns: []turn{{open}, {open}, {soon}, {open}, {open}, {open}, {open}, {soon},
			say("whole")}, calls: 9, attempts: []int{0, 0, 0, 1, 1, 1, 1, 1, 2},
			out: []string{"message completed whole"}},
		"a circuit, patience": {retry: engine.Retry{Patience: 4 * time.Millisecond},
			turns: slices.Repeat([]turn{{open}}, 100), calls: -1, attempts: []int{0}, err: "left alone"},
		"not before its time": {turns: []turn{{later}}, calls: 1, err: "later"},
		"patience": {retry: engine.Retry{Patience: 3 * time.Millisecond, Attempts: 9},
			turns: []turn{{soon}, {down}}, calls: 2, err: "down"},
		"what broke off": {turns: []turn{half, say("whole")}, calls: 2,
			out: []string{"message incomplete half", "message completed whole"}},
		"what broke off, final": {retry: engine.Retry{Final: true}, turns: []turn{half}, calls: 1,
			out: []string{"message incomplete half"}, err: "down"},
		"what did not begin yet": {retry: engine.Retry{Final: true}, turns: []turn{{soon}, say("whole")}, calls: 2,
			out: []string{"message completed whole"}},
		"the client's fault": {turns: []turn{{berth.Invalid("", "wrong")}}, calls: 1, err: "wrong"},
		"the context":        {turns: []turn{{model.TooLong("too long")}}, calls: 1, err: "too long"},
	} {
		runInBubble(t, name, func(t *testing.T) {
			h := newHouse(t, tt.turns...)
			h.stop()
			h.retry = tt.retry
			h.start()
			r := h.final(h.create(`{"model":"played","input":"x"}`).ID)
			got := ""
			if r.Error != nil {
				got = r.Error.Message
			}
			if diff := cmp.Diff(tt.out, outline(t, r.Output)); diff != "" || got != tt.err || tt.calls >= 0 &&
				len(h.model.requests) != tt.calls {
				t.Errorf("got error %q after %d turns, want %q after %d; output (-want +got):\n%s", got,
					len(h.model.requests), tt.err, tt.calls, diff)
			}
			for i, req := range h.model.requests {
				if tt.attempts == nil && req.Attempt != i || tt.attempts != nil && i < len(tt.attempts) &&
					req.Attempt != tt.attempts[i] {
					t.Errorf("turn %d was attempt %d", i, req.Attempt)
				}
			}
		})
	}
}

// The next response prefers the provider of the chain's last turn, after a restart as
// well. The usage of each upstream is shown and recorded.
func TestOrigins(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		answer := func(upstream string, cost berth.Amount, what ...any) turn {
			f := model.Finish{Reason: model.FinishStop,
				Usage:  berth.Usage{InputTokens: 10, OutputTokens: 5, TotalTokens: 15},
				Origin: model.Origin{Upstream: upstream, Key: "K", Model: "m-1"}}
			if cost > 0 {
				f.Cost = &berth.Cost{Value: cost, Currency: "usd"}
			}
			return append(what, f)
		}
		h := newHouse(t, answer("a", 7, model.Call{ID: "call_1", Name: "shell", Arguments: `{"commands":["a"]}`}),
			answer("b", 0, model.Text{Text: "ok"}),
			answer("b", 0, model.Text{Text: "ok"}), answer("b", 5, model.Text{Text: "ok"}),
			answer("c", 0, model.Text{Text: "ok"}), answer("c", 0, model.Text{Text: "ok"}))
		prefers := func(what string, n int, want model.Origin) {
			t.Helper()
			if got := h.model.requests[n].Prefer; got != want {
				t.Errorf("%s: prefers %+v, want %+v", what, got, want)
			}
		}
		first := h.final(h.create(`{` + withShell + `,"input":"x"}`).ID)
		h.settled(first.ID) // the key is remembered, and not stored
		prefers("a chain's first turn", 0, model.Origin{})
		prefers("its second", 1, model.Origin{Upstream: "a", Key: "K", Model: "m-1"})
		if cost, known := first.Cost(); !known || cost.Value != 7 || len(first.Berth.Usage) != 2 ||
			first.Berth.Usage[1].Upstream != "b" || first.Usage.TotalTokens != 30 {
			t.Errorf("got %s", asJSON(t, first.Berth))
		}
		h.final(h.create(`{"model":"played","input":"x","previous_response_id":"` + string(first.ID) + `"}`).ID)
		prefers("the next response's", 2, model.Origin{Upstream: "b", Key: "K", Model: "m-1"})
		h.stop()
		h.start()
		h.final(h.create(`{"model":"played","input":"x","previous_response_id":"` + string(first.ID) + `"}`).ID)
		prefers("that of the next life", 3, model.Origin{Upstream: "b", Model: "m-1"})
		h.newConversation(project)
		for range 2 {
			h.final(h.create(`{"model":"played","input":"x","conversation":"conv_1"}`).ID)
		}
		prefers("a conversation's first", 4, model.Origin{})
		prefers("a conversation's second", 5, model.Origin{Upstream: "c", Model: "m-1"})

		used, err := h.store.Usage(t.Context(), store.UsageQuery{Project: project, Kind: store.UsageUpstream,
			From: time.Unix(0, 0), To: time.Now().Add(time.Hour), Width: 1 << 26 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		var got []store.Usage
		for _, u := range used {
			got = append(got, *u)
		}
		row := func(name string, count int64, cost berth.Amount) store.Usage {
			return store.Usage{Project: project, Kind: store.UsageUpstream, Name: name, Count: count,
				InputTokens: 10 * count, OutputTokens: 5 * count, Cost: cost}
		}
		if diff := cmp.Diff([]store.Usage{row("a/m-1", 1, 7), row("b/m-1", 3, 5), row("c/m-1", 2, 0)},
			got); diff != "" {
			t.Errorf("usage (-want +got):\n%s", diff)
		}
	})
}
