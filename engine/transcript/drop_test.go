package transcript

import (
	"fmt"
	"testing"

	"github.com/berth-run/berth"
)

// Whatever the order of items: no call is left without its output or the other way
// round, instructions and the newest words of the user stay, the order stays, and
// no more is dropped once enough is.
func FuzzDropOldest(f *testing.F) {
	f.Add("uascoucoua", 3)
	f.Add("ucccooouu", 9)
	f.Add("rcoroc", 1)
	f.Fuzz(func(t *testing.T, shape string, excess int) {
		items := itemsOfShape(shape)
		kept := dropOldest(items, excess, func(berth.Item) int { return 1 })
		left := map[string]bool{}
		next := 0
		for _, it := range kept {
			left[it.ID()] = true
			for items[next].ID() != it.ID() {
				if next++; next == len(items) {
					t.Fatalf("%s by %d: %s is out of order", shape, excess, it.ID())
				}
			}
		}
		pairs := map[string]bool{}
		newest := ""
		for _, it := range items {
			switch {
			case it.CallID() != "":
				if was, seen := pairs[it.CallID()]; seen && was != left[it.ID()] {
					t.Errorf("%s by %d: %s is split", shape, excess, it.CallID())
				}
				pairs[it.CallID()] = left[it.ID()]
			case it.Role() == "system" && !left[it.ID()]:
				t.Errorf("%s by %d: %s is dropped", shape, excess, it.ID())
			case it.Role() == "user":
				newest = it.ID()
			}
		}
		if newest != "" && !left[newest] {
			t.Errorf("%s by %d: %s is dropped", shape, excess, newest)
		}
		if n := len(items); n > 0 && !left[items[n-1].ID()] {
			t.Errorf("%s by %d: the last item is dropped", shape, excess)
		}
		if excess <= 0 && len(items) > 0 && items[0].Role() == "user" && len(kept) != len(items) {
			t.Errorf("%s by %d: %d of %d items are left, though nothing was too much", shape, excess, len(kept),
				len(items))
		}
	})
}

// itemsOfShape makes items of letters: u is the user, s the system, a the model, r
// its reasoning, c a call, and o the output of the first call that has none.
func itemsOfShape(shape string) []berth.Item {
	var items []berth.Item
	calls, outputs := 0, 0
	for i, letter := range shape[:min(len(shape), 200)] {
		fields := map[string]string{"id": fmt.Sprintf("x_%d", i), "type": "message"}
		switch letter {
		case 'u':
			fields["role"] = "user"
		case 's':
			fields["role"] = "system"
		case 'a':
			fields["role"] = "assistant"
		case 'r':
			fields["type"] = "reasoning"
		case 'c':
			calls++
			fields["type"], fields["call_id"] = "function_call", fmt.Sprintf("call_%d", calls)
		case 'o':
			if outputs == calls {
				continue
			}
			outputs++
			fields["type"], fields["call_id"] = "function_call_output", fmt.Sprintf("call_%d", outputs)
		default:
			continue
		}
		items = append(items, berth.NewItem(fields))
	}
	return items
}
