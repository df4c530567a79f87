package model_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/modeltest"
)

// A randomTurn is one random turn of a model and the outputs of its calls.
type randomTurn struct {
	user    string
	text    string
	calls   []modeltest.Call // without ids
	outputs []string
}

// words are the parts of random texts. Dialects escape, split or trim some of them.
var words = []string{"a", "tide ", "\n", "\"", "\\", "{}", "é", "船", "👩‍🚀", "</x>", "\t", "  ", "null",
	"```sh\nls\n```", "\u2028", "%s", "&amp;"}

func someText(r *rand.Rand, most int) string {
	var b strings.Builder
	b.WriteString("w") // vendors refuse blank texts, and some trim
	for range r.IntN(most) {
		b.WriteString(words[r.IntN(len(words))])
	}
	return b.String() + "."
}

// someArguments returns a JSON object with values of every kind.
func someArguments(r *rand.Rand) string {
	fields := map[string]any{}
	for n := range r.IntN(4) {
		fields[fmt.Sprintf("f%d", n)] = []any{someText(r, 5), r.IntN(1000), 1.5, true, nil, []any{someText(r, 2)},
			map[string]any{"deep": someText(r, 3)}}[r.IntN(7)]
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func someTurn(r *rand.Rand) randomTurn {
	s := randomTurn{user: someText(r, 8), text: someText(r, 8)}
	for range r.IntN(4) {
		s.calls = append(s.calls, modeltest.Call{Name: []string{"look", "find_it", "f-2"}[r.IntN(3)],
			Arguments: someArguments(r)})
		s.outputs = append(s.outputs, someText(r, 8))
	}
	return s
}

// turn returns the randomTurn as a vendor streams it, split at random characters.
func (s randomTurn) turn(r *rand.Rand) modeltest.Turn {
	var steps []modeltest.Step
	for _, piece := range pieces(r, s.text) {
		steps = append(steps, model.Text{Text: piece})
	}
	for i, c := range s.calls {
		id := fmt.Sprintf("call_%d_%d", r.IntN(1<<30), i)
		for n, piece := range pieces(r, c.Arguments) {
			call := model.Call{Index: i, Arguments: piece}
			if n == 0 {
				call.ID, call.Name = id, c.Name
			}
			steps = append(steps, call)
		}
	}
	return modeltest.Turn{Steps: append(steps, model.Finish{Reason: model.FinishStop})}
}

func pieces(r *rand.Rand, text string) []string {
	runes := []rune(text)
	var out []string
	for len(runes) > 0 {
		n := 1 + r.IntN(len(runes))
		out, runes = append(out, string(runes[:n])), runes[n:]
	}
	return out
}

// lines returns the randomTurn in a neutral form: one line for each text, call and output.
func (s randomTurn) lines() []string {
	out := []string{"user: " + s.user, "assistant: " + s.text}
	for _, c := range s.calls {
		out = append(out, "call: "+c.Name+" "+compact(c.Arguments))
	}
	for i, o := range s.outputs {
		out = append(out, fmt.Sprintf("output of %s: %s", s.calls[i].Name, o))
	}
	return out
}

func compact(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b) // sorts the keys
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return strings.TrimSpace(b.String())
}

// understood returns a received request in the form of lines.
func understood(h *modeltest.Request) []string {
	var out []string
	names := map[string]string{}
	for _, m := range h.Messages {
		switch {
		case m.Role == "tool":
			out = append(out, fmt.Sprintf("output of %s: %s", names[m.CallID], m.Text))
			continue
		case m.Text != "":
			out = append(out, m.Role+": "+m.Text)
		}
		for _, c := range m.Calls {
			names[c.ID] = c.Name
			out = append(out, "call: "+c.Name+" "+compact(c.Arguments))
		}
	}
	return out
}

// The output of a vendor's model and the outputs of its calls reach any other vendor's
// model unchanged.
func TestRoundTrip(t *testing.T) {
	rounds := uint64(60)
	if testing.Short() {
		rounds = 10
	}
	for seed := range rounds {
		roundTrip(t, seed)
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { roundTrip(t, seed) })
}

// roundTrip runs a conversation with random vendors, one for each turn, and compares
// what each vendor receives at the end.
func roundTrip(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	var next modeltest.Turn
	all := vendorsThatReply(t, func(int, *modeltest.Request) modeltest.Turn { return next })
	req := &model.Request{Instructions: someText(r, 4), ParallelToolCalls: true,
		Tools: []berth.FunctionTool{{Type: "function", Name: "look"}, {Type: "function", Name: "find_it"},
			{Type: "function", Name: "f-2"}}}
	var want, path []string
	for range 1 + r.IntN(5) {
		s, v := someTurn(r), all[r.IntN(len(all))]
		path = append(path, v.name)
		next = s.turn(r)
		req.Items, req.Model = append(req.Items, message("user", s.user)), v.model
		a, err := modeltest.Collect(t, v.provider, req)
		if err != nil {
			t.Fatalf("seed %d, %v: %v", seed, path, err)
		}
		if a.Text != s.text || len(a.Calls) != len(s.calls) {
			t.Fatalf("seed %d, %v: the model sent %q and %d calls, the provider yielded %q and %d calls", seed, path,
				s.text, len(s.calls), a.Text, len(a.Calls))
		}
		req.Items = append(req.Items, a.Items...)
		for i, c := range a.Calls {
			if c.Name != s.calls[i].Name || compact(c.Arguments) != compact(s.calls[i].Arguments) {
				t.Fatalf("seed %d, %v: call %d is %s %s, want %+v", seed, path, i, c.Name, c.Arguments, s.calls[i])
			}
			req.Items = append(req.Items, berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput,
				CallID: c.CallID, Output: berth.StringDelta(s.outputs[i])}))
		}
		want = append(want, s.lines()...)
	}
	req.Items = append(req.Items, message("user", "And now?"))
	want = append(want, "user: And now?")
	next = modeltest.Reply(model.Text{Text: "Enough."}, model.Finish{Reason: model.FinishStop})
	for _, v := range all {
		req.Model = v.model
		if _, err := modeltest.Collect(t, v.provider, req); err != nil {
			t.Fatalf("seed %d, %v, then %s: %v", seed, path, v.name, err)
		}
		got := v.double.Requests()
		if diff := cmp.Diff(want, understood(got[len(got)-1])); diff != "" {
			t.Errorf("seed %d, %v, then %s (-sent +received):\n%s", seed, path, v.name, diff)
		}
	}
}
