package bundle

import (
	"context"
	"iter"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// A recital is a provider that streams the turns of a recorded response in order,
// whatever the requests contain. It is for one run.
type recital struct {
	turns [][]model.Delta
	next  int
}

// recite returns a recital of a response's output.
func recite(tools *tool.Registry, output []berth.Item) *recital {
	r := &recital{}
	ended := true
	for _, it := range output {
		// A marked call is the engine's, and a program makes its calls again.
		if tools.IsOutput(it) || tools.MarkOf(it) != (berth.CallBerth{}) || tool.CallerOf(it) != nil {
			ended = true
			continue
		}
		deltas := deltasOf(tools, it)
		if len(deltas) == 0 {
			continue
		}
		if ended {
			r.turns = append(r.turns, nil)
		}
		ended = false
		turn := &r.turns[len(r.turns)-1]
		for _, d := range deltas {
			if call, ok := d.(model.Call); ok {
				call.Index = len(*turn)
				d = call
			}
			*turn = append(*turn, d)
		}
		ended = tools.HoldsOutput(it)
	}
	return r
}

// deltasOf returns the deltas from which the engine makes an item. It returns none for
// reasoning, which is meaningless without its model.
func deltasOf(tools *tool.Registry, it berth.Item) []model.Delta {
	switch {
	case it.Type() == berth.ItemMessage:
		var m berth.Message
		if it.Decode(&m) != nil {
			return nil
		}
		var deltas []model.Delta
		for _, c := range m.Content {
			if c.Refusal != "" {
				deltas = append(deltas, model.Refusal{Text: c.Refusal})
			} else if c.Text != "" {
				deltas = append(deltas, model.Text{Text: c.Text, Phase: m.Phase})
			}
		}
		return deltas
	case it.Type() == berth.ItemApprovalRequest:
		var r berth.ApprovalRequest
		if it.Decode(&r) != nil {
			return nil
		}
		return []model.Delta{model.Call{ID: berth.NewID(berth.PrefixCall), Name: tool.ApprovalFunction(r),
			Arguments: r.Arguments}}
	case tools.IsCall(it) && it.Status() != berth.StatusIncomplete:
		low, err := tools.Lower(it)
		var call berth.FunctionCall
		if err != nil || low.Decode(&call) != nil {
			return nil
		}
		return []model.Delta{model.Call{ID: call.CallID, Name: call.Name, Arguments: call.Arguments}}
	}
	return nil
}

// Stream implements model.Provider.
func (r *recital) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		if r.next >= len(r.turns) {
			yield(nil, berth.Errorf(berth.CodeInvalid, "The record has no more turns."))
			return
		}
		turn := r.turns[r.next]
		r.next++
		for _, d := range turn {
			if !yield(d, nil) {
				return
			}
		}
		yield(model.Finish{Reason: model.FinishStop, Model: req.Model}, nil)
	}
}
