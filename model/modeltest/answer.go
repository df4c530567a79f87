package modeltest

import (
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// An Answer is what a provider said in one turn, put together.
type Answer struct {
	Text, Thought, Refusal string

	Deltas   int // of any kind
	Logprobs []string
	Calls    []berth.FunctionCall // by index
	Items    []berth.Item         // the output as a server would keep it, calls last
	Finish   model.Finish

	open berth.ItemType // of the message or reasoning that goes on
	text string         // of it
}

// take adds a delta and reports whether it is the Finish.
func (a *Answer) take(t *testing.T, d model.Delta) bool {
	t.Helper()
	switch d := d.(type) {
	case model.Text:
		a.Text += d.Text
		for _, l := range d.Logprobs {
			a.Logprobs = append(a.Logprobs, string(l))
		}
		a.more(berth.ItemMessage, d.Text)
	case model.Thought:
		a.Thought += d.Text
		a.more(berth.ItemReasoning, d.Text)
	case model.Refusal:
		a.Refusal += d.Text
		a.more(berth.ItemMessage, d.Text)
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

// more goes on with an item, or begins one.
func (a *Answer) more(kind berth.ItemType, text string) {
	if a.open != kind {
		a.close()
	}
	a.open, a.text = kind, a.text+text
}

// close ends the item that goes on.
func (a *Answer) close() {
	switch a.open {
	case berth.ItemMessage:
		a.Items = append(a.Items, assistant(a.text))
	case berth.ItemReasoning:
		a.Items = append(a.Items, berth.NewItem(berth.Reasoning{Type: berth.ItemReasoning, Summary: []berth.Content{{Type: "summary_text", Text: a.text}}}))
	}
	a.open, a.text = "", ""
}
