package transcript

import (
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// OfModel returns items without the calls that programs among them have made, and without
// their outputs: the model sees the output of the program. A call of a program that is not
// among the items stays.
func OfModel(tools *tool.Registry, items []berth.Item) []berth.Item {
	if !slices.ContainsFunc(items, func(it berth.Item) bool { return it.Type() == berth.ItemProgram }) {
		return items
	}
	programs, called := map[string]bool{}, map[string]bool{}
	out := make([]berth.Item, 0, len(items))
	for _, it := range items {
		switch {
		case it.Type() == berth.ItemProgram:
			programs[it.CallID()] = true
		case tools.IsOutput(it) && called[it.CallID()]:
			continue
		case tools.IsCall(it) && isMadeBy(programs, it):
			called[it.CallID()] = it.CallID() != ""
			continue
		}
		out = append(out, it)
	}
	return out
}

func isMadeBy(programs map[string]bool, it berth.Item) bool {
	caller := tool.CallerOf(it)
	return caller != nil && programs[caller.CallerID]
}

// ProgramCalls returns the places of the calls that a program has made, by their numbers,
// which start from 1, and the largest number. A client may drop the numbers; the order of the
// calls then counts.
func ProgramCalls(tools *tool.Registry, items []berth.Item, program string) (places map[int]int, last int) {
	places = map[int]int{}
	for i, it := range items {
		if !tools.IsCall(it) {
			continue
		}
		caller := tool.CallerOf(it)
		if caller == nil || caller.CallerID != program {
			continue
		}
		n := last + 1
		if caller.Berth != nil && caller.Berth.Call > last {
			n = caller.Berth.Call
		}
		places[n], last = i, n
	}
	return places, last
}
