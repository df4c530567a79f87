package model_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/anthropic"
	"github.com/berth-run/berth/model/chat"
	"github.com/berth-run/berth/model/gemini"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/openai"
	"github.com/berth-run/berth/model/upstream"
)

// A vendor is a provider and its double.
type vendor struct {
	name, model string
	provider    model.Provider
	double      *modeltest.Double
}

// vendors returns one vendor of each kind. Their models think, write and call in each
// turn.
func vendors(t *testing.T) []vendor {
	t.Helper()
	return vendorsThatReply(t, func(n int, _ *modeltest.Request) modeltest.Turn {
		id := fmt.Sprintf("call_%d", n) // the same for every vendor
		return modeltest.Reply(model.Thought{Text: "Hm."}, model.Text{Text: "Let me see."},
			model.Call{ID: id, Name: "look", Arguments: `{"at":"<tide>"}`},
			model.Call{Index: 1, ID: id + "b", Name: "look", Arguments: "{}"}, model.Finish{Reason: model.FinishStop})
	})
}

// vendorsThatReply returns one vendor of each kind, with doubles that follow a script.
func vendorsThatReply(t *testing.T, script modeltest.Script) []vendor {
	t.Helper()
	at := func(h http.Handler) upstream.Options {
		return upstream.Options{BaseURL: "http://double/v1",
			HTTPClient: &http.Client{Transport: modeltest.Direct{Handler: h}}}
	}
	must := func(p model.Provider, err error) model.Provider {
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	c, o, a, g := modeltest.NewChatHandler(script), modeltest.NewOpenAIHandler(script),
		modeltest.NewAnthropicHandler(script), modeltest.NewGeminiHandler(script)
	plain := at(g)
	plain.BaseURL = "http://double"
	return []vendor{
		{"chat", "qwen3-32b", must(chat.New(chat.Options{Options: at(c)})), c.Double},
		{"openai", "gpt-5.5", must(openai.New(openai.Options{Options: at(o)})), o.Double},
		{"anthropic", "claude-opus-5-5", must(anthropic.New(anthropic.Options{Options: at(a)})), a.Double},
		{"anthropic, older model", "claude-sonnet-4-5", must(anthropic.New(anthropic.Options{Options: at(a)})),
			a.Double},
		{"gemini", "gemini-3.5-flash", must(gemini.New(gemini.Options{Options: plain})), g.Double},
	}
}

// A chain may move from any vendor to any other and back in the middle of its calls.
// Each accepts the items of the others and receives all of them.
func TestPortability(t *testing.T) {
	high := "high"
	all := vendors(t)
	for first := range all {
		for second := range all {
			for third := range all {
				order := []vendor{all[first], all[second], all[third], all[first]}
				req := &model.Request{Instructions: "Be brief.",
					Items: []berth.Item{message("user", "What is the tide?")}, ParallelToolCalls: true,
					Tools:     []berth.FunctionTool{{Type: "function", Name: "look"}},
					Reasoning: berth.ReasoningConfig{Effort: &high}}
				var path []string
				for n, v := range order {
					path = append(path, v.name)
					req.Model = v.model
					before := len(v.double.Requests())
					a, err := modeltest.Collect(t, v.provider, req)
					if err != nil {
						t.Fatalf("%s: %v", strings.Join(path, " → "), err)
					}
					if len(a.Calls) != 2 || a.Text != "Let me see." || a.Thought != "Hm." {
						t.Fatalf("%s: got %+v", strings.Join(path, " → "), a)
					}
					wantTurns(t, path, v.double.Requests()[before], n)
					req.Items = append(req.Items, a.Items...)
					for i, c := range a.Calls {
						req.Items = append(req.Items,
							berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, CallID: c.CallID,
								Output: berth.StringDelta(fmt.Sprintf("output %d.%d", n, i))}))
					}
				}
			}
		}
	}
}

// wantTurns checks that a vendor received the n turns before.
func wantTurns(t *testing.T, path []string, got *modeltest.Request, n int) {
	t.Helper()
	var calls, texts int
	var outputs []string
	for _, m := range got.Messages {
		calls += len(m.Calls)
		texts += strings.Count(m.Text, "Let me see.")
		if m.Role == "tool" {
			outputs = append(outputs, m.Text)
		}
		for _, c := range m.Calls {
			if c.Name != "look" || c.Arguments != `{"at":"<tide>"}` && c.Arguments != "{}" &&
				c.Arguments != `{"at":"\u003ctide\u003e"}` {
				t.Errorf("%s: got %+v", strings.Join(path, " → "), c)
			}
		}
	}
	if got.System != "Be brief." || calls != 2*n || texts != n || len(outputs) != 2*n {
		t.Errorf("%s: got %q, %d calls, %d texts and outputs %q after %d turns", strings.Join(path, " → "), got.System,
			calls, texts, outputs, n)
	}
	for i, o := range outputs {
		if want := fmt.Sprintf("output %d.%d", i/2, i%2); o != want {
			t.Errorf("%s: output %d is %q, want %q", strings.Join(path, " → "), i, o, want)
		}
	}
}
