package modeltest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// thoughts are the cases about reasoning that a vendor needs back unchanged. The
// doubles refuse foreign signatures and changed reasoning.
var thoughts = []conversation{
	{name: "signed thoughts come back", needs: Signatures, run: func(t *testing.T, h Harness) {
		got := continued(t, h, "double-1", Reply(model.Thought{Text: "Hm, "}, model.Thought{Text: "tides."},
			model.Text{Text: "Let me see."},
			model.Call{ID: "c1", Name: "now", Arguments: "{}"}, stop))
		want := []Message{{Role: "user", Text: "hi"},
			{Role: "assistant", Text: "Let me see.", Thought: "Hm, tides.", Seals: 1,
				Calls: []Call{{"c1", "now", "{}"}}}, {Role: "tool", CallID: "c1", Text: "noon"}}
		if h.lacks(ThoughtTexts) {
			want[1].Thought = ""
		}
		if diff := cmp.Diff(want, got.Messages); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
	}},
	{name: "hidden thoughts come back", needs: Signatures, run: func(t *testing.T, h Harness) {
		got := continued(t, h, "double-1", Reply(Sealed{}, model.Call{ID: "c1", Name: "now", Arguments: "{}"}, stop))
		want := []Message{{Role: "user", Text: "hi"}, {Role: "assistant", Seals: 1, Calls: []Call{{"c1", "now", "{}"}}},
			{Role: "tool", CallID: "c1", Text: "noon"}}
		if diff := cmp.Diff(want, got.Messages); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
	}},
	{name: "thoughts before parallel calls come back", needs: Signatures, run: func(t *testing.T, h Harness) {
		got := continued(t, h, "double-1", Reply(model.Thought{Text: "Both."}, model.Call{ID: "c1", Name: "now",
			Arguments: "{}"},
			model.Call{Index: 1, ID: "c2", Name: "now", Arguments: "{}"}, stop))
		if m := got.Messages[1]; m.Thought != "Both." && !h.lacks(ThoughtTexts) || m.Seals != 1 || len(m.Calls) != 2 {
			t.Errorf("got %+v", m)
		}
	}},
	{name: "another model does not get the thoughts", needs: Signatures, run: func(t *testing.T, h Harness) {
		if h.lacks(ModelBinding) {
			t.Skip("models of this vendor read each other's thoughts")
		}
		got := continued(t, h, "double-2", Reply(model.Thought{Text: "Hm."}, model.Text{Text: "Now:"},
			model.Call{ID: "c1", Name: "now", Arguments: "{}"}, stop))
		want := []Message{{Role: "user", Text: "hi"},
			{Role: "assistant", Text: "Now:", Calls: []Call{{"c1", "now", "{}"}}}, {Role: "tool", CallID: "c1",
				Text: "noon"}}
		if diff := cmp.Diff(want, got.Messages); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
	}},
	{name: "thoughts without output are omitted", needs: Signatures, run: func(t *testing.T, h Harness) {
		if h.lacks(AnswerNames) {
			t.Skip("thoughts do not identify their answer")
		}
		p, double := h.Open(t, Play(Reply(model.Thought{Text: "Hm."}, model.Text{Text: "a"}, Cut{}),
			Reply(model.Thought{Text: "So."}, model.Text{Text: "Yes."}, stop), Reply(stop)))
		req := newRequest("hi")
		first, err := Collect(t, p, req)
		if err == nil {
			t.Fatal("a broken answer succeeded")
		}
		second := must(t, p, req)
		req.Items = append(req.Items, first.Items[0]) // the text was not complete
		req.Items = append(append(req.Items, second.Items...), user("why?"))
		must(t, p, req)
		if m := double.Requests()[2].Messages[1]; m.Thought != "So." && !h.lacks(ThoughtTexts) || m.Seals != 1 {
			t.Errorf("got %+v", m)
		}
	}},
	{name: "thoughts and a signature are one item", needs: Signatures, run: func(t *testing.T, h Harness) {
		if h.lacks(ThoughtTexts) {
			t.Skip("the signature covers other parts")
		}
		p, _ := h.Open(t, Always(Reply(model.Thought{Text: "Hm, "}, model.Thought{Text: "tides."},
			model.Text{Text: "High."}, stop)))
		a := must(t, p, newRequest("hi"))
		var types []string
		for _, it := range a.Items {
			types = append(types, string(it.Type()))
		}
		var r berth.Reasoning
		if strings.Join(types, " ") != "reasoning message" || a.Items[0].Decode(&r) != nil || len(r.Summary) != 1 ||
			r.Summary[0].Text != "Hm, tides." || r.EncryptedContent == "" {
			t.Errorf("got %s: %s", types, a.Items[0].Raw())
		}
	}},
}

// continued plays a turn that calls now, answers the call, and returns the next
// request as the vendor received it.
func continued(t *testing.T, h Harness, model string, turn Turn) *Request {
	t.Helper()
	p, double := h.Open(t, Play(turn, Reply(stop)))
	req := withTools("hi")
	a := must(t, p, req)
	req.Items = append(req.Items, a.Items...)
	for _, c := range a.Calls {
		req.Items = append(req.Items, output(c.CallID, "noon"))
	}
	req.Model = model
	must(t, p, req)
	return double.Requests()[1]
}
