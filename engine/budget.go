package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/tool"
)

// The defaults of a budget. An agent that makes progress does not reach them.
const (
	defaultFailures = 10
	defaultRepeats  = 50
)

// budget returns the budget of the response: that of its request, within the server's
// limits, with defaults.
func (g *guard) budget() berth.Budget {
	var requested berth.Budget
	if g.rails.Budget != nil {
		requested = *g.rails.Budget
	}
	bounds := requested.Within(g.limits)
	if bounds.Failures == 0 {
		bounds.Failures = defaultFailures
	}
	if bounds.Repeats == 0 {
		bounds.Repeats = defaultRepeats
	}
	return bounds
}

// A limitReason error is the cause of a context that ends at a limit of the budget. Its text is
// the reason of the incomplete response.
type limitReason string

func (s limitReason) Error() string { return "the response reached a limit: " + string(s) }

// within returns a context that ends when the response's time is up.
func (g *guard) within(ctx context.Context) (context.Context, context.CancelFunc) {
	seconds := g.budget().Seconds
	if seconds <= 0 {
		return ctx, func() {}
	}
	end := time.Unix(g.createdAt, 0).Add(time.Duration(seconds) * time.Second)
	return context.WithDeadlineCause(ctx, end, limitReason(berth.ReasonSeconds))
}

// exhausted returns the limit that the response has reached before another turn, or "". It
// derives all counts from stored items, so they survive a crash.
func (g *guard) exhausted(body *berth.Response, tokens int) string {
	b := g.budget()
	cost, priced := body.Cost()
	switch {
	case b.Turns > 0 && turns(g.kinds, body.Output) >= b.Turns:
		return berth.ReasonTurns
	case b.Tokens > 0 && tokens >= b.Tokens:
		return berth.ReasonTokens
	case b.Cost > 0 && priced && cost.Value >= b.Cost:
		return berth.ReasonCost
	}
	failures, repeats := circles(g.kinds, body.Output)
	switch {
	case b.Failures > 0 && failures >= b.Failures:
		return berth.ReasonFailures
	case b.Repeats > 0 && repeats >= b.Repeats:
		return berth.ReasonRepeats
	}
	return ""
}

// turns returns the number of the model's turns in an output. The items between two groups
// of hosted outputs are one turn. Each call that holds its own output counts as the end of
// a turn, also of several that the model made in one.
func turns(tools *tool.Registry, output []berth.Item) int {
	n := 0
	between := true
	for _, it := range transcript.OfModel(tools, output) {
		if tools.IsOutput(it) || transcript.IsCompaction(it) || checkRound(tools, it) > 0 {
			between = true
			continue
		}
		if between {
			n++
		}
		between = tools.HoldsOutput(it)
	}
	return n
}

// circles returns two counts at the end of an output: consecutive failures of the same
// call, and consecutive calls whose result had been seen before.
func circles(tools *tool.Registry, output []berth.Item) (failures, repeats int) {
	calls := map[string]string{} // content by call id
	seen := map[string]bool{}
	last := ""
	for _, it := range transcript.OfModel(tools, output) {
		within := tools.HoldsOutput(it) && tools.IsAnswered(it)
		if tools.IsHosted(it) && checkRound(tools, it) == 0 {
			calls[cmp.Or(it.CallID(), it.ID())] = contentOf(tools.Lower(it))
			if !within {
				continue
			}
		}
		call, ok := calls[cmp.Or(it.CallID(), it.ID())]
		if !ok || !within && !tools.IsOutput(it) {
			continue
		}
		result := contentOf(tools.Lower(it))
		if within {
			result = contentOf(tools.LowerAnswer(it))
		}
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

// contentOf returns the arguments of a lowered call or the content of a lowered output.
// They are equal for repeated calls and outputs, whose identifiers differ. It returns a
// unique string for an error of the lowering.
func contentOf(low berth.Item, err error) string {
	if err != nil {
		return rand.Text()
	}
	var content struct {
		Arguments string
		Output    json.RawMessage
	}
	_ = low.Decode(&content)
	return content.Arguments + string(content.Output)
}
