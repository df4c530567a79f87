package modeltest

import (
	"errors"
	"slices"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// Key is the secret with which an adapter must ask the doubles of the suite.
const Key = "sk-double-0123456789abcdef"

// A Harness is an adapter and the double of its vendor.
type Harness struct {
	// Open starts a double that follows the script, and an adapter that asks it
	// with Key. Both end with the test.
	Open func(t *testing.T, script Script) (model.Provider, *Double)

	// Closed returns an adapter whose vendor cannot be reached.
	Closed func(t *testing.T) model.Provider

	// Lacks names what the vendor's wire has no word for; cases about it are skipped.
	Lacks []Feature
}

// A Feature is something that not every vendor's wire can say.
type Feature string

const (
	Logprobs   Feature = "logprobs"
	Thoughts   Feature = "thoughts"
	Refusals   Feature = "refusals"
	Files      Feature = "files"
	Structured Feature = "structured output"
	Effort     Feature = "reasoning effort"
)

// A conversation is a case of the suite.
type conversation struct {
	name  string
	needs Feature
	run   func(t *testing.T, h Harness)
}

// Run puts an adapter through the suite.
func Run(t *testing.T, h Harness) {
	for _, c := range slices.Concat(answers, requests, histories, failures) {
		t.Run(c.name, func(t *testing.T) {
			if c.needs != "" && slices.Contains(h.Lacks, c.needs) {
				t.Skipf("the wire has no %s", c.needs)
			}
			c.run(t, h)
		})
	}
}

// An Answer is what a provider said in one turn, put together.
type Answer struct {
	Text, Thought, Refusal string

	Deltas   int // of any kind
	Logprobs []string
	Calls    []berth.FunctionCall // by index
	Finish   model.Finish
}

// Ask asks for one turn, puts the answer together, and checks what model.Provider
// promises of any sequence. An error is returned with what came before it.
func Ask(t *testing.T, p model.Provider, req *model.Request) (*Answer, error) {
	t.Helper()
	a := &Answer{}
	before := slices.Clone(req.Items)
	finished, failed := false, error(nil)
	for d, err := range p.Stream(t.Context(), req) {
		if finished || failed != nil {
			t.Fatalf("after the end: got %#v, %v", d, err)
		}
		if err != nil {
			failed = err
			continue
		}
		a.Deltas++
		finished = a.take(t, d)
	}
	if !finished && failed == nil {
		t.Error("the answer ended without a Finish or an error")
	}
	if !slices.EqualFunc(before, req.Items, func(x, y berth.Item) bool { return string(x.Raw()) == string(y.Raw()) }) {
		t.Error("the request was changed")
	}
	return a, failed
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
	case model.Thought:
		a.Thought += d.Text
	case model.Refusal:
		a.Refusal += d.Text
	case model.Call:
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
	case model.Finish:
		a.Finish = d
		return true
	}
	return false
}

// must asks and expects an answer.
func must(t *testing.T, p model.Provider, req *model.Request) *Answer {
	t.Helper()
	a, err := Ask(t, p, req)
	if err != nil {
		t.Fatalf("got error %v, want an answer", err)
	}
	return a
}

// hears asks with the items and returns what the vendor heard.
func hears(t *testing.T, h Harness, req *model.Request) *Heard {
	t.Helper()
	p, double := h.Open(t, Always(Say(model.Text{Text: "ok"}, stop)))
	must(t, p, req)
	return double.Heard()[0]
}

// wantError checks the code of an error that should reach the client.
func wantError(t *testing.T, err error, code berth.Code) *berth.Error {
	t.Helper()
	e, ok := errors.AsType[*berth.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("got error %v, want a *berth.Error with code %s", err, code)
	}
	return e
}

// stop is the end of an answer, with some usage.
var stop = model.Finish{Reason: model.FinishStop, Model: "double-1", Usage: berth.Usage{
	InputTokens: 11, InputTokenDetails: berth.InputTokenDetails{CachedTokens: 4},
	OutputTokens: 7, OutputTokenDetails: berth.OutputTokenDetails{ReasoningTokens: 3}, TotalTokens: 18,
}}

// ask is a request with one user message.
func ask(text string) *model.Request {
	return &model.Request{Model: "double-1", Items: []berth.Item{user(text)}, ParallelToolCalls: true}
}

func user(text string) berth.Item {
	return message("user", berth.Content{Type: "input_text", Text: text})
}

func assistant(text string) berth.Item {
	return message("assistant", berth.Content{Type: "output_text", Text: text})
}

func message(role string, content ...berth.Content) berth.Item {
	return berth.NewItem(berth.Message{Type: berth.ItemMessage, Role: role, Content: content})
}

func call(id, name, arguments string) berth.Item {
	return berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, CallID: id, Name: name, Arguments: arguments})
}

func output(id, text string) berth.Item {
	return berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: id, Output: berth.StringDelta(text)})
}

func raw(json string) berth.Item {
	var it berth.Item
	if err := it.UnmarshalJSON([]byte(json)); err != nil {
		panic(err)
	}
	return it
}
