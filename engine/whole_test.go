package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

func whole(json string) berth.Item {
	var it berth.Item
	if err := it.UnmarshalJSON([]byte(json)); err != nil {
		panic(err)
	}
	return it
}

// A provider's whole item replaces the item of its deltas, under the id that the client
// has seen. It is stored together with the events that follow, because a recovery takes a
// closed last item for the last of its turn.
func TestWholeItems(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := newHouse(t, turn{
			// without a piece
			model.Item{Item: whole(`{"type":"reasoning","summary":[],"encrypted_content":"sealed"}`), Ends: true},
			model.Thought{Text: "Hm.", Summary: true},
			model.Item{Item: whole(
				`{"type":"reasoning","id":"theirs","summary":[{"type":"summary_text","text":"Hm."}],"encrypted_content":"signed"}`),
				Ends: true},
			model.Thought{Text: "So.", Summary: true},
			model.Text{Text: "a"},
			model.Item{Item: whole(
				`{"type":"message","id":"theirs","role":"assistant","status":"in_progress","phase":"commentary","content":[{"type":"output_text","text":"a","annotations":[],"logprobs":[]}]}`),
				Ends: true},
			model.Text{Text: "b"},
			model.Item{Item: whole(`{"type":"novelty","id":"nv_1","colour":"red"}`)},
			model.Text{Text: "c"},
		})
		r := h.create(`{"model":"played","input":"hi"}`)
		closed := map[int]bool{}
		opened := map[int]string{}
		for _, ev := range h.events(r.ID) {
			switch ev.Type {
			case berth.EventOutputItemAdded:
				if *ev.OutputIndex != len(opened) || len(closed) != len(opened) {
					t.Errorf("item %d opens after %d items with %d closed", *ev.OutputIndex, len(opened), len(closed))
				}
				opened[*ev.OutputIndex] = ev.Item.ID()
			case berth.EventOutputItemDone:
				closed[*ev.OutputIndex] = true
				if id := ev.Item.ID(); id == "" || id != opened[*ev.OutputIndex] {
					t.Errorf("item %d opened as %s and closed as %s", *ev.OutputIndex, opened[*ev.OutputIndex], id)
				}
			}
		}
		var got []string
		for _, it := range h.final(r.ID).Output {
			var fields struct {
				Encrypted string `json:"encrypted_content"`
				Phase     string
				Colour    string
				Content   []berth.Content
				Summary   []berth.Content
			}
			decode(t, it, &fields)
			line := string(it.Type()) + " " + string(it.Status()) + " " + fields.Encrypted + fields.Phase +
				fields.Colour
			for _, c := range append(fields.Content, fields.Summary...) {
				line += " " + c.Text
			}
			got = append(got, line)
		}
		want := []string{"reasoning  sealed", "reasoning  signed Hm.", "reasoning   So.",
			"message completed commentary a", "message completed  b", "novelty  red", "message completed  c"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("output (-want +got):\n%s", diff)
		}
	})
}
