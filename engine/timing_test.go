package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth"
)

// A response has the times of its calls of the model, failed ones too, and of its hosted calls, also in
// the store.
func TestTimings(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h, _, tracer := traced(t, turn{berth.Errorf(berth.CodeUpstream, "broken")},
			shell("call_1", `{"commands":["fail"]}`), say("done"))
		h.retry.Attempts = 2
		h.containers.commands["fail"] = func(c *fakeCall) { c.exit(3) }
		ctx, request := tracer.Start(t.Context(), "request")
		before := time.Now().UnixMilli()
		r, err := h.tryCreate(ctx, `{`+withShell+`,"input":"x"}`)
		if err != nil {
			t.Fatal(err)
		}
		final := h.final(r.ID)
		var got []string
		last := before
		for _, tm := range final.Berth.Timings {
			line := fmt.Sprintf("%s %s %s", tm.Type, tm.ItemType, tm.Error)
			if tm.Usage != nil {
				line += fmt.Sprintf(" %d", tm.Usage.InputTokens)
			}
			if tm.StartedAtMS < last || tm.DurationMS < 0 || tm.StartedAtMS+tm.DurationMS > time.Now().UnixMilli()+1 ||
				(tm.FirstTokenMS != nil) != (tm.Usage != nil) {
				t.Errorf("got %+v after %d", tm, last)
			}
			last = tm.StartedAtMS
			if tm.Type == berth.TimingTool && tm.ItemID != final.Output[0].ID() {
				t.Errorf("the call is %s, want %s", tm.ItemID, final.Output[0].ID())
			}
			got = append(got, line)
		}
		if want := []string{"model  upstream_error", "model   10", "tool shell_call failed",
			"model   10"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if id := request.SpanContext().TraceID().String(); final.Berth.TraceID != id {
			t.Errorf("got the trace %q, want %q", final.Berth.TraceID, id)
		}
	})
}

// A response has a limited number of timings, and adding one changes no earlier copy.
func TestTimingsBounded(t *testing.T) {
	t.Parallel()
	var b *berth.ResponseBerth
	for i := range berth.MaxTimings + 5 {
		b = b.AddTiming(berth.Timing{StartedAtMS: int64(i)})
	}
	one, other := b, b.AddTiming(berth.Timing{})
	if len(one.Timings) != berth.MaxTimings || len(other.Timings) != berth.MaxTimings ||
		one.Timings[berth.MaxTimings-1].StartedAtMS != berth.MaxTimings-1 {
		t.Errorf("got %d and %d timings", len(one.Timings), len(other.Timings))
	}
}
