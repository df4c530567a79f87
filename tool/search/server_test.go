package search

import (
	"context"
	"slices"
	"testing"

	"github.com/berth-run/berth"
)

// A recorder is an emitter that stores the items.
type recorder struct{ items []berth.Item }

func (*recorder) Call() int { return 0 }

func (r *recorder) Add(_ context.Context, it berth.Item) (int, error) {
	r.items = append(r.items, it)
	return len(r.items) - 1, nil
}

func (*recorder) Emit(context.Context, int, ...berth.Event) error { return nil }

func (r *recorder) Done(_ context.Context, index int, it berth.Item) error {
	r.items[index] = it
	return nil
}

// After a crash a search continues with the output that it had opened, or opens one.
func TestResumeSearch(t *testing.T) {
	tide := berth.NewTool(map[string]any{"type": "function", "name": "tide", "defer_loading": true})
	entries, err := deferred([]berth.Tool{tide})
	if err != nil {
		t.Fatal(err)
	}
	s := &serverTool{entries: entries}
	call := s.NewCall("")
	if _, item, refusal := call.Close(`{"paths":["tide"]}`); refusal != "" || item.Status() != berth.StatusCompleted {
		t.Fatalf("closed as %s, refusal %q", item, refusal)
	}
	_, item, _ := s.NewCall("").Close(`{"paths":["tide"]}`)
	for _, crashed := range []bool{false, true} {
		out := &recorder{items: []berth.Item{item}}
		var output berth.Item
		var stored []berth.Event
		if crashed {
			output = berth.NewItem(berth.ToolSearchOutput{ID: "tso_1", Type: berth.ItemToolSearchOutput,
				Status: berth.StatusInProgress})
			index, _ := out.Add(t.Context(), output)
			stored = []berth.Event{{Type: berth.EventOutputItemAdded, OutputIndex: &index, Item: &output}}
		}
		resumed, err := s.ResumeCall(item, output, stored)
		if err != nil {
			t.Fatal(err)
		}
		if err := resumed.Run(t.Context(), out); err != nil {
			t.Fatal(err)
		}
		if len(out.items) != 2 || out.items[1].Status() != berth.StatusCompleted || crashed &&
			out.items[1].ID() != "tso_1" {
			t.Errorf("crashed %v: items %v", crashed, out.items)
		}
		found, err := out.found()
		if err != nil || !slices.Equal(found, []string{"tide"}) {
			t.Errorf("crashed %v: found %v, %v", crashed, found, err)
		}
	}
}

// found returns the names of the tools in the output.
func (r *recorder) found() (names []string, err error) {
	var out berth.ToolSearchOutput
	err = r.items[1].Decode(&out)
	for _, t := range out.Tools {
		names = append(names, t.Name())
	}
	return names, err
}
