package engine

import (
	"context"
	"encoding/json"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/tool"
)

// defaultFailures and defaultRepeats hold where nobody says anything: no agent that
// gets on comes near them.
const (
	defaultFailures = 10
	defaultRepeats  = 50
)

// budget is what the response may take.
func (r *run) budget() berth.Budget {
	var asked berth.Budget
	if b := r.record.Request.Berth; b != nil && b.Budget != nil {
		asked = *b.Budget
	}
	bounds := asked.Within(r.engine.Limits.Budget)
	if bounds.Failures == 0 {
		bounds.Failures = defaultFailures
	}
	if bounds.Repeats == 0 {
		bounds.Repeats = defaultRepeats
	}
	return bounds
}

// A spent is the cause of a context that ends because a bound was reached.
type spent string

func (s spent) Error() string { return "the response reached its bound: " + string(s) }

// within returns a context that ends when the response's time is up.
func (r *run) within(ctx context.Context) (context.Context, context.CancelFunc) {
	seconds := r.budget().Seconds
	if seconds <= 0 {
		return ctx, func() {}
	}
	end := time.Unix(r.record.Body.CreatedAt, 0).Add(time.Duration(seconds) * time.Second)
	return context.WithDeadlineCause(ctx, end, spent(berth.ReasonSeconds))
}

// exhausted returns the bound that the response has reached, before another turn is
// asked; "" is none. It is a fold of what is stored, so that a crash forgets nothing.
func (r *run) exhausted(body *berth.Response) string {
	b := r.budget()
	cost, priced := body.Cost()
	switch {
	case b.Turns > 0 && turns(r.engine.Tools, body.Output) >= b.Turns:
		return berth.ReasonTurns
	case b.Tokens > 0 && r.usage.TotalTokens >= b.Tokens:
		return berth.ReasonTokens
	case b.Cost > 0 && priced && cost.Value >= b.Cost:
		return berth.ReasonCost
	}
	failures, repeats := circles(r.engine.Tools, body.Output)
	switch {
	case b.Failures > 0 && failures >= b.Failures:
		return berth.ReasonFailures
	case b.Repeats > 0 && repeats >= b.Repeats:
		return berth.ReasonRepeats
	}
	return ""
}

// turns returns how often the model has spoken: what it says ends where outputs of
// hosted calls come.
func turns(tools *tool.Registry, output []berth.Item) int {
	n := 0
	heard := true
	for _, it := range output {
		if tools.IsOutput(it) || transcript.IsCompaction(it) || checkRound(tools, it) > 0 {
			heard = true
			continue
		}
		if heard {
			n++
		}
		heard = false
	}
	return n
}

// circles returns how often in a row, up to the end, the same call has failed, and
// how many calls in a row have brought nothing that an earlier one had not.
func circles(tools *tool.Registry, output []berth.Item) (failures, repeats int) {
	asked := map[string]string{} // by call id
	seen := map[string]bool{}
	last := ""
	for _, it := range output {
		if tools.IsHosted(it) && checkRound(tools, it) == 0 {
			asked[it.CallID()] = deed(tools, it)
			continue
		}
		call, ok := asked[it.CallID()]
		if !ok || !tools.IsOutput(it) {
			continue
		}
		result := deed(tools, it)
		switch {
		case tools.Outcome(it) == tool.OK:
			failures, last = 0, ""
		case call == last:
			failures++
		default:
			failures, last = 1, call
		}
		if seen[call+result] {
			repeats++
		} else {
			repeats = 0
		}
		seen[call+result] = true
	}
	return failures, repeats
}

// deed is what is the same of two calls, or outputs, that say the same.
func deed(tools *tool.Registry, it berth.Item) string {
	low, err := tools.Lower(it)
	if err != nil {
		return it.ID()
	}
	var said struct {
		Arguments string
		Output    json.RawMessage
	}
	_ = low.Decode(&said)
	return said.Arguments + string(said.Output)
}
