package modeltest

import (
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// An Answer is a provider's output of one turn, assembled.
type Answer struct {
	Text, Thought, Refusal string

	Deltas   int // of any type
	Logprobs []string
	Calls    []berth.FunctionCall // by index
	Items    []berth.Item         // as a server would store the output, calls last
	Finish   model.Finish

	open berth.ItemType // type of the open message or reasoning
	text string         // its text
}

// take adds a delta. It reports whether it is the Finish.
func (a *Answer) take(t *testing.T, d model.Delta) bool {
	t.Helper()
	switch d := d.(type) {
	case model.Text:
		a.Text += d.Text
		for _, l := range d.Logprobs {
			a.Logprobs = append(a.Logprobs, string(l))
		}
		a.extend(berth.ItemMessage, d.Text)
	case model.Thought:
		a.Thought += d.Text
		a.extend(berth.ItemReasoning, d.Text)
	case model.Refusal:
		a.Refusal += d.Text
		a.extend(berth.ItemMessage, d.Text)
	case model.Call:
		a.close()
		a.call(t, d)
	case model.Item:
		if !d.Ends || d.Item.Type() != a.open {
			a.close()
		}
		a.open, a.text = "", ""
		a.Items = append(a.Items, d.Item)
	case model.Finish:
		a.close()
		for _, c := range a.Calls {
			c.Type = berth.ItemFunctionCall
			a.Items = append(a.Items, berth.NewItem(c))
		}
		a.Finish = d
		return true
	}
	return false
}

func (a *Answer) call(t *testing.T, d model.Call) {
	t.Helper()
	first := d.Index == len(a.Calls)
	switch {
	case d.Index < 0 || d.Index > len(a.Calls):
		t.Fatalf("a call's index is %d after %d calls", d.Index, len(a.Calls))
	case first != (d.Name != "") || first != (d.ID != ""):
		t.Fatalf("call %d: id %q and name %q; want both with its first piece, and only there", d.Index, d.ID, d.Name)
	case first:
		a.Calls = append(a.Calls, berth.FunctionCall{CallID: d.ID, Name: d.Name})
	}
	a.Calls[d.Index].Arguments += d.Arguments
}

// extend adds text to the open item, or starts one.
func (a *Answer) extend(kind berth.ItemType, text string) {
	if a.open != kind {
		a.close()
	}
	a.open, a.text = kind, a.text+text
}

// close ends the open item.
func (a *Answer) close() {
	switch a.open {
	case berth.ItemMessage:
		a.Items = append(a.Items, assistant(a.text))
	case berth.ItemReasoning:
		a.Items = append(a.Items, berth.NewItem(berth.Reasoning{Type: berth.ItemReasoning,
			Summary: []berth.Content{{Type: "summary_text", Text: a.text}}}))
	}
	a.open, a.text = "", ""
}
