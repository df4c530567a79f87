package modeltest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// answers are the cases about a model's output.
var answers = []conversation{
	{name: "text is streamed", run: func(t *testing.T, h Harness) {
		more := make(chan struct{})
		p, _ := h.Open(t, Always(Reply(model.Text{Text: "Hel"}, Wait(more), model.Text{Text: "lo, Grüße 🌊"}, stop)))
		var got []model.Delta
		for d, err := range p.Stream(t.Context(), newRequest("hi")) {
			if err != nil {
				t.Fatal(err)
			}
			if len(got) == 0 {
				close(more) // the rest is sent only after the start has arrived
			}
			got = append(got, d)
		}
		want := []model.Delta{model.Text{Text: "Hel"}, model.Text{Text: "lo, Grüße 🌊"}, stop}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("deltas (-want +got):\n%s", diff)
		}
	}},
	{name: "an answer without text", run: func(t *testing.T, h Harness) {
		p, _ := h.Open(t, Always(Reply(stop)))
		if a := must(t, p, newRequest("hi")); a.Text != "" || a.Deltas != 1 {
			t.Errorf("got %+v, want a Finish only", a)
		}
	}},
	{name: "a thousand pieces stay in order", run: func(t *testing.T, h Harness) {
		var steps []Step
		var want strings.Builder
		for i := range 1000 {
			s := string(rune('a'+i%26)) + " "
			steps = append(steps, model.Text{Text: s})
			want.WriteString(s)
		}
		p, _ := h.Open(t, Always(Turn{Steps: append(steps, stop)}))
		if a := must(t, p, newRequest("hi")); a.Text != want.String() {
			t.Errorf("got %q, want %q", a.Text, want.String())
		}
	}},
	{name: "an answer cut off by the output limit", run: ending(model.FinishLength)},
	{name: "an answer cut off by a filter", run: ending(model.FinishContentFilter)},
	{name: "a call in pieces", run: answersCalls(
		berth.FunctionCall{CallID: "call_1", Name: "shell", Arguments: `{"commands":["echo \"a\" 🌊"]}`})},
	{name: "a call without arguments", run: answersCalls(
		berth.FunctionCall{CallID: "call_1", Name: "now", Arguments: ""})},
	{name: "a call with broken arguments", needs: Broken, run: answersCalls(
		berth.FunctionCall{CallID: "call_1", Name: "shell", Arguments: `{"commands":["ls"`})},
	{name: "parallel calls", run: answersCalls(
		berth.FunctionCall{CallID: "call_1", Name: "shell", Arguments: `{"commands":["ls"]}`},
		berth.FunctionCall{CallID: "call_2", Name: "now", Arguments: `{}`},
		berth.FunctionCall{CallID: "call_3", Name: "shell", Arguments: `{"commands":["pwd"]}`})},
	{name: "text, then a call", run: func(t *testing.T, h Harness) {
		p, _ := h.Open(t, Always(Reply(model.Text{Text: "Let me see."},
			model.Call{ID: "call_1", Name: "shell"}, model.Call{Arguments: `{}`}, stop)))
		a := must(t, p, withTools("hi"))
		if a.Text != "Let me see." || len(a.Calls) != 1 || a.Finish.Reason != model.FinishStop {
			t.Errorf("got %+v", a)
		}
	}},
	{name: "an id of an earlier turn is replaced", run: func(t *testing.T, h Harness) {
		p, _ := h.Open(t, Always(Reply(model.Call{ID: "call_0", Name: "now", Arguments: `{}`}, stop)))
		req := withTools("hi")
		req.Items = append(req.Items, call("call_0", "now", "{}"), output("call_0", "noon"))
		if a := must(t, p, req); a.Calls[0].CallID == "call_0" {
			t.Error("two calls of the conversation have the same id")
		}
	}},
	{name: "thoughts", needs: Thoughts, run: func(t *testing.T, h Harness) {
		p, _ := h.Open(t, Always(Reply(model.Thought{Text: "Hm, "}, model.Thought{Text: "tides."},
			model.Text{Text: "High."}, stop)))
		if a := must(t, p, newRequest("hi")); a.Thought != "Hm, tides." || a.Text != "High." {
			t.Errorf("got %+v", a)
		}
	}},
	{name: "a refusal", needs: Refusals, run: func(t *testing.T, h Harness) {
		p, _ := h.Open(t, Always(Reply(model.Refusal{Text: "I can"}, model.Refusal{Text: "not."}, stop)))
		if a := must(t, p, newRequest("hi")); a.Refusal != "I cannot." || a.Text != "" {
			t.Errorf("got %+v", a)
		}
	}},
	{name: "probabilities", needs: Logprobs, run: func(t *testing.T, h Harness) {
		const prob = `{"token":"a","bytes":[97],"logprob":-0.5,"top_logprobs":[{"token":"b","bytes":[98],"logprob":-1}]}`
		p, double := h.Open(t, Always(Reply(model.Text{Text: "a", Logprobs: []json.RawMessage{json.RawMessage(prob)}},
			stop)))
		two := 2
		req := newRequest("hi")
		req.Logprobs, req.TopLogprobs = true, &two
		a := must(t, p, req)
		if diff := cmp.Diff([]string{prob}, a.Logprobs); diff != "" {
			t.Errorf("logprobs (-want +got):\n%s", diff)
		}
		if got := double.Requests()[0]; !got.Logprobs || got.TopLogprobs != 2 {
			t.Errorf("asked for: got %v, %d", got.Logprobs, got.TopLogprobs)
		}
	}},
}

// ending is a case about an answer that is cut off for a reason.
func ending(reason model.FinishReason) func(*testing.T, Harness) {
	return func(t *testing.T, h Harness) {
		end := stop
		end.Reason = reason
		p, _ := h.Open(t, Always(Reply(model.Text{Text: "and th"}, end)))
		a := must(t, p, newRequest("hi"))
		if diff := cmp.Diff(end, a.Finish); diff != "" || a.Text != "and th" {
			t.Errorf("after %q, finish (-want +got):\n%s", a.Text, diff)
		}
	}
}

// answersCalls is a case about a model that makes the calls, with their pieces
// interleaved as far as the wire allows.
func answersCalls(want ...berth.FunctionCall) func(*testing.T, Harness) {
	return func(t *testing.T, h Harness) {
		var steps []Step
		for i, c := range want {
			steps = append(steps, model.Call{Index: i, ID: c.CallID, Name: c.Name})
		}
		for at, more := 0, true; more; at++ {
			more = false
			for i, c := range want {
				if r := []rune(c.Arguments); at < len(r) {
					steps, more = append(steps, model.Call{Index: i, Arguments: string(r[at])}), true
				}
			}
		}
		p, _ := h.Open(t, Always(Turn{Steps: append(steps, stop)}))
		a := must(t, p, withTools("hi"))
		for i := range a.Calls {
			if i < len(want) && want[i].Arguments == "" && a.Calls[i].Arguments == "{}" {
				a.Calls[i].Arguments = "" // equivalent
			}
		}
		if diff := cmp.Diff(want, a.Calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(stop, a.Finish); diff != "" {
			t.Errorf("finish (-want +got):\n%s", diff)
		}
	}
}

// withTools returns a request with two tools.
func withTools(text string) *model.Request {
	req := newRequest(text)
	strict := true
	req.Tools = []berth.FunctionTool{
		{Type: "function", Name: "shell", Description: "Runs commands.", Strict: &strict, Parameters: json.RawMessage(
			`{"type":"object","properties":{"commands":{"type":"array","items":{"type":"string"}}},"required":["commands"],"additionalProperties":false}`)},
		{Type: "function", Name: "now"},
	}
	return req
}
