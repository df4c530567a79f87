package transcript

import (
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// Outputs maps the place of each call with an output to the place of the output, which is
// the same for a call that holds its own. A model
// may use one call_id several times. Each output belongs to the first call without output
// that the model has finished, or else to the first call.
func Outputs(tools *tool.Registry, items []berth.Item) map[int]int {
	open := map[string][]int{} // calls without an output, by call_id
	outputs := map[int]int{}
	for i, it := range items {
		id := it.CallID()
		switch {
		case tools.HoldsOutput(it):
			if tools.IsAnswered(it) {
				outputs[i] = i
			}
		case tools.IsCall(it):
			open[id] = append(open[id], i)
		case tools.IsOutput(it) && len(open[id]) > 0:
			n := max(0, slices.IndexFunc(open[id], func(c int) bool { return wasMade(tools, items[c]) }))
			outputs[open[id][n]] = i
			open[id] = slices.Delete(open[id], n, n+1)
		}
	}
	return outputs
}

// wasMade reports whether the model has finished a call.
func wasMade(tools *tool.Registry, it berth.Item) bool {
	return it.Status() != berth.StatusIncomplete || tools.MarkOf(it).Invalid != ""
}

// Unanswered returns the calls among items that have no output.
func Unanswered(tools *tool.Registry, items []berth.Item) []berth.Item {
	outputs := Outputs(tools, items)
	var calls []berth.Item
	for i, it := range items {
		if _, answered := outputs[i]; tools.IsCall(it) && !answered {
			calls = append(calls, it)
		}
	}
	return calls
}
