package transcript

import (
	"encoding/json"
	"reflect"
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

// withoutRepeats returns the input without calls that repeat an open one. Some clients send a call again beside its
// output, without its id, although the chain has it. A call that repeats the id of an item stays: it is refused.
func withoutRepeats(tools *tool.Registry, chain, input []berth.Item) []berth.Item {
	if !slices.ContainsFunc(input, tools.IsCall) {
		return input
	}
	open := map[string][]berth.Item{} // by call_id
	for _, it := range Unanswered(tools, chain) {
		open[it.CallID()] = append(open[it.CallID()], it)
	}
	outputs := map[string]int{} // to come, by call_id
	for _, it := range input {
		if tools.IsOutput(it) {
			outputs[it.CallID()]++
		}
	}
	kept := make([]berth.Item, 0, len(input))
	for _, it := range input {
		id := it.CallID()
		switch {
		case tools.IsOutput(it):
			outputs[id]--
			if len(open[id]) > 0 {
				open[id] = open[id][1:]
			}
		case id != "" && tools.IsCall(it) && !tools.HoldsOutput(it):
			if outputs[id] <= len(open[id]) && slices.ContainsFunc(open[id], func(earlier berth.Item) bool {
				return (it.ID() == "" || earlier.ID() != it.ID()) && sameCall(tools, earlier, it)
			}) {
				continue
			}
			open[id] = append(open[id], it)
		}
		kept = append(kept, it)
	}
	return kept
}

// sameCall reports whether a model sees two items as the same call.
func sameCall(tools *tool.Registry, a, b berth.Item) bool {
	if a.Type() != b.Type() {
		return false
	}
	nameA, argumentsA, okA := lowered(tools, a)
	nameB, argumentsB, okB := lowered(tools, b)
	return okA && okB && nameA == nameB && reflect.DeepEqual(argumentsA, argumentsB)
}

// lowered returns the function of a call with its arguments, which may be written in several ways.
func lowered(tools *tool.Registry, it berth.Item) (name string, arguments any, ok bool) {
	low, err := tools.Lower(it)
	if err != nil {
		return "", nil, false
	}
	var call berth.FunctionCall
	if low.Decode(&call) != nil {
		return "", nil, false
	}
	if json.Unmarshal([]byte(call.Arguments), &arguments) != nil {
		arguments = call.Arguments
	}
	return call.Name, arguments, true
}
