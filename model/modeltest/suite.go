package modeltest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// Key is the secret that providers must send to the doubles of the suite.
const Key = "sk-double-0123456789abcdef"

// A Harness opens a provider and the double of its vendor.
type Harness struct {
	// Open starts a double that follows the script, and a provider that calls it with
	// Key. Both end with the test.
	Open func(t *testing.T, script Script) (model.Provider, *Double)

	// At returns a provider for an address in place of a Double's URL. A timeout
	// other than 0 is its timeout.
	At func(t *testing.T, address string, timeout time.Duration) model.Provider

	// MaxOutputTokens is the provider's default on the wire; 0 if it sends none.
	MaxOutputTokens int

	// Lacks names features that the vendor's wire does not have. Their cases are
	// skipped.
	Lacks []Feature
}

// A Feature is something that not every vendor's wire has.
type Feature string

const (
	Logprobs   Feature = "logprobs"
	Thoughts   Feature = "thoughts"
	Refusals   Feature = "refusals"
	Files      Feature = "files"
	Structured Feature = "structured output"
	Effort     Feature = "reasoning effort"
	Signatures Feature = "signatures of reasoning"
	Stops      Feature = "stop sequences"
	Broken     Feature = "arguments that are not JSON"

	// Cases that involve these run without them if the wire lacks them.
	User         Feature = "user"
	JSONObject   Feature = "JSON objects without a schema"
	SchemaNames  Feature = "names of schemas"
	StrictTools  Feature = "strict tools"
	OneCall      Feature = "a switch for parallel calls"
	ModelBinding Feature = "signatures that are bound to a model"
	ImageURLs    Feature = "addresses of images"
	FileNames    Feature = "names of files"
	ThoughtTexts Feature = "text of thoughts in requests"
	AnswerNames  Feature = "thoughts that name their answer"
)

func (h Harness) lacks(f Feature) bool { return slices.Contains(h.Lacks, f) }

// A conversation is a case of the suite.
type conversation struct {
	name  string
	needs Feature
	run   func(t *testing.T, h Harness)
}

// Run runs the suite against a provider.
func Run(t *testing.T, h Harness) {
	for _, c := range slices.Concat(answers, requests, histories, thoughts, failures, chaos, sockets) {
		settled(t, func() {
			t.Run(c.name, func(t *testing.T) {
				if c.needs != "" && h.lacks(c.needs) {
					t.Skipf("the wire has no %s", c.needs)
				}
				c.run(t, h)
			})
		})
	}
}

// Collect sends one turn, assembles the answer, and checks what model.Provider
// specifies for every sequence. On error, the answer holds what came before.
func Collect(t *testing.T, p model.Provider, req *model.Request) (*Answer, error) {
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

// must is Collect for requests that must succeed.
func must(t *testing.T, p model.Provider, req *model.Request) *Answer {
	t.Helper()
	a, err := Collect(t, p, req)
	if err != nil {
		t.Fatalf("got error %v, want an answer", err)
	}
	return a
}

// received sends the request and returns it as the vendor received it.
func received(t *testing.T, h Harness, req *model.Request) *Request {
	t.Helper()
	p, double := h.Open(t, Always(Reply(model.Text{Text: "ok"}, stop)))
	must(t, p, req)
	return double.Requests()[0]
}

// wantError checks the code of an error for the client.
func wantError(t *testing.T, err error, code berth.Code) *berth.Error {
	t.Helper()
	e, ok := errors.AsType[*berth.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("got error %v, want a *berth.Error with code %s", err, code)
	}
	return e
}

// stop is the Finish of an ordinary answer, with usage.
var stop = model.Finish{Reason: model.FinishStop, Model: "double-1", Usage: berth.Usage{
	InputTokens: 11, InputTokenDetails: berth.InputTokenDetails{CachedTokens: 4},
	OutputTokens: 7, OutputTokenDetails: berth.OutputTokenDetails{ReasoningTokens: 3}, TotalTokens: 18,
}}

// newRequest returns a request with one user message.
func newRequest(text string) *model.Request {
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
	return berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: id,
		Output: berth.StringDelta(text)})
}

func raw(json string) berth.Item {
	var it berth.Item
	if err := it.UnmarshalJSON([]byte(json)); err != nil {
		panic(err)
	}
	return it
}
