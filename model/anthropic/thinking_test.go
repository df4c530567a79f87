package anthropic_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/anthropic"
	"github.com/berth-run/berth/model/modeltest"
	"github.com/berth-run/berth/model/upstream"
)

func errParam(err error) string {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok {
		return "-"
	}
	return e.Param
}

// names holds names of models of all generations, in the forms of several hosts.
var names = []string{"claude-3-haiku-20240307", "claude-3-5-sonnet-20241022", "claude-3-7-sonnet-20250219",
	"claude-sonnet-4-20250514", "claude-opus-4-1-20250805",
	"claude-haiku-4-5-20251001", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-opus-4-5", "claude-opus-4-6",
	"anthropic/claude-sonnet-4.6", "claude-opus-4-7",
	"claude-opus-4-8", "claude-sonnet-5", "claude-opus-5", "claude-fable-5-1", "claude-opus-5-5", "claude-haiku-5-5",
	"claude-sonnet-6@20270101", "claude-opus-latest", "kimi-k2-thinking"}

// For any parameters of the client, requests satisfy the double's rules for the
// model's generation.
func TestEveryGeneration(t *testing.T) {
	auto := "auto"
	for _, name := range names {
		double := modeltest.NewAnthropicHandler(ok)
		p, err := anthropic.New(anthropic.Options{Options: upstream.Options{BaseURL: "http://double",
			HTTPClient: &http.Client{Transport: modeltest.Direct{Handler: double}}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, effort := range []string{"", "none", "minimal", "low", "medium", "high", "xhigh"} {
			for _, limit := range []int{0, 100, 20_000} {
				for _, choice := range []string{"auto", "none", "required", "function"} {
					req := &model.Request{Model: name, Items: []berth.Item{user("hi")},
						Tools:      []berth.FunctionTool{{Name: "f"}},
						ToolChoice: model.ToolChoice{Mode: choice}, MaxOutputTokens: limit}
					if choice == "function" {
						req.ToolChoice.Name = "f"
					}
					if effort != "" {
						req.Reasoning.Effort, req.Reasoning.Summary = &effort, &auto
					}
					if limit == 20_000 { // a chain from another vendor in the middle of its calls
						req.Items = append(req.Items, berth.NewItem(berth.Reasoning{Type: berth.ItemReasoning,
							EncryptedContent: "gAAAA", Summary: []berth.Content{}}), call("c1"), output("c1", "1"))
					}
					if _, err := modeltest.Collect(t, p, req); err != nil {
						t.Errorf("%s, effort %q, %d tokens, %s: %v", name, effort, limit, choice, err)
					}
				}
			}
		}
		if len(double.Requests()) != 7*3*4 {
			t.Errorf("%s: received %d requests", name, len(double.Requests()))
		}
	}
}

func TestEfforts(t *testing.T) {
	tests := []struct {
		name, effort, summary string
		with                  func(*anthropic.Options)
		thinking, output      string
	}{
		{name: "claude-opus-4-8"},
		{name: "claude-opus-4-8", effort: "low", thinking: `{"type":"adaptive"}`, output: `{"effort":"low"}`},
		{name: "claude-opus-4-8", effort: "minimal", summary: "auto",
			thinking: `{"type":"adaptive","display":"summarized"}`, output: `{"effort":"low"}`},
		{name: "claude-opus-4-8", summary: "detailed", thinking: `{"type":"adaptive","display":"summarized"}`},
		{name: "claude-opus-4-8", effort: "xhigh", thinking: `{"type":"adaptive"}`, output: `{"effort":"xhigh"}`},
		{name: "claude-opus-4-8", effort: "none"},
		{name: "claude-opus-4-6", effort: "xhigh", thinking: `{"type":"adaptive"}`, output: `{"effort":"high"}`},
		{name: "claude-opus-4-5", effort: "medium", thinking: `{"type":"enabled","budget_tokens":12000}`,
			output: `{"effort":"medium"}`},
		{name: "claude-haiku-4-5", effort: "medium", thinking: `{"type":"enabled","budget_tokens":12000}`},
		{name: "claude-3-5-sonnet-20241022", effort: "high"},
		{name: "claude-opus-5", effort: "none", thinking: `{"type":"disabled"}`},
		{name: "claude-opus-5-5",
			thinking: `{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}}`},
		{name: "claude-opus-5-5", effort: "high",
			thinking: `{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}}`,
			output:   `{"effort":"high"}`},
		{name: "kimi-k2", effort: "high", thinking: `{"type":"enabled","budget_tokens":16000}`},
		{name: "kimi-k2", effort: "high", with: func(o *anthropic.Options) {
			o.Thinking = "adaptive"
		}, thinking: `{"type":"adaptive"}`},
		{name: "claude-sonnet-4-6", effort: "low", with: func(o *anthropic.Options) {
			o.Thinking = "budget"
		}, thinking: `{"type":"enabled","budget_tokens":4096}`, output: `{"effort":"low"}`},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.name, tt.effort, tt.summary), func(t *testing.T) {
			req := &model.Request{Model: tt.name}
			if tt.effort != "" {
				req.Reasoning.Effort = &tt.effort
			}
			if tt.summary != "" {
				req.Reasoning.Summary = &tt.summary
			}
			if tt.with == nil {
				tt.with = func(*anthropic.Options) {}
			}
			sent, body := received(t, req, tt.with)
			if diff := cmp.Diff([]string{tt.thinking, tt.output}, []string{string(body["thinking"]),
				string(body["output_config"])}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if beta := sent.Header.Get("Anthropic-Beta"); strings.Contains(beta,
				"binding") != strings.Contains(tt.thinking, "binding") {
				t.Errorf("beta: got %q", beta)
			}
		})
	}
}

// A chain that stays on a model includes its thoughts, unless the model does not think
// in this turn. The vendor drops thoughts if what precedes them was changed.
func TestThoughtsAlongAChain(t *testing.T) {
	high, none := "high", "none"
	think := modeltest.Reply(model.Thought{Text: "Hm."}, model.Call{ID: "c1", Name: "f", Arguments: "{}"},
		model.Finish{Reason: model.FinishStop})
	tests := []struct {
		name   string
		change func(*model.Request)
		seals  int
	}{
		{"claude-haiku-4-5", nil, 1},
		{"claude-opus-4-8", nil, 1},
		{"claude-opus-5-5", nil, 1},
		{"claude-opus-4-8", func(r *model.Request) { r.Reasoning.Effort = nil }, 0},
		{"claude-opus-5-5", func(r *model.Request) { r.Reasoning.Effort = nil }, 1},
		{"claude-opus-5-5", func(r *model.Request) { r.Reasoning.Effort = &none }, 0},
		{"claude-opus-5-5", func(r *model.Request) { r.Instructions = "Be loud." }, 0},
		{"claude-haiku-4-5", func(r *model.Request) { r.ToolChoice = model.ToolChoice{Mode: "required"} }, 0},
	}
	for i, tt := range tests {
		t.Run(fmt.Sprint(i, tt.name), func(t *testing.T) {
			p, double := open(t, modeltest.Play(think, modeltest.Reply(model.Text{Text: "ok"},
				model.Finish{Reason: model.FinishStop})))
			req := &model.Request{Model: tt.name, Instructions: "Be brief.", Items: []berth.Item{user("hi")},
				Tools:     []berth.FunctionTool{{Name: "f"}},
				Reasoning: berth.ReasoningConfig{Effort: &high}}
			a, err := modeltest.Collect(t, p, req)
			if err != nil {
				t.Fatal(err)
			}
			req.Items = append(append(req.Items, a.Items...), output("c1", "1"))
			if tt.change != nil {
				tt.change(req)
			}
			if _, err := modeltest.Collect(t, p, req); err != nil {
				t.Fatal(err)
			}
			if m := double.Requests()[1].Messages[1]; m.Seals != tt.seals || len(m.Calls) != 1 {
				t.Errorf("got %+v, want %d seals", m, tt.seals)
			}
		})
	}
}

const strictObject = `{"type":"object","properties":{"why":{"type":"string"},"answer":{"type":"number"}},"required":["why","answer"],"additionalProperties":false}`

func TestStructured(t *testing.T) {
	format := func(schema string) berth.TextConfig {
		return berth.TextConfig{Format: json.RawMessage(`{"type":"json_schema","name":"n","schema":` + schema + `}`)}
	}
	// A supported schema retains the order of its fields, which is the order of the
	// answer.
	_, body := received(t, &model.Request{Text: format(strictObject)})
	if want := `{"format":{"type":"json_schema","schema":` + strictObject +
		`}}`; string(body["output_config"]) != want {
		t.Errorf("got %s, want %s", body["output_config"], want)
	}
	// Unsupported keywords move into descriptions.
	_, body = received(t,
		&model.Request{Text: format(`{"type":"object","properties":{"n":{"type":"integer","minimum":3}}}`)})
	if got := string(body["output_config"]); strings.Contains(got, `"minimum"`) || !strings.Contains(got,
		"minimum: 3") {
		t.Errorf("got %s", got)
	}
	// An older model answers with a call.
	p, double := open(t, modeltest.Always(modeltest.Reply(model.Call{ID: "c1", Name: "final_answer",
		Arguments: `{"why":"so",`}, model.Call{Arguments: `"answer":1}`}, model.Finish{Reason: model.FinishStop})))
	for _, tools := range [][]berth.FunctionTool{nil, {{Name: "f"}}} {
		a, err := modeltest.Collect(t, p, &model.Request{Model: "claude-sonnet-4-0", Items: []berth.Item{user("hi")},
			Text: format(strictObject), Tools: tools, ParallelToolCalls: true})
		if err != nil || a.Text != `{"why":"so","answer":1}` || len(a.Calls) != 0 {
			t.Errorf("got %+v, %v", a, err)
		}
	}
	sent := double.Requests()
	if sent[0].ToolChoice != (model.ToolChoice{Mode: "function", Name: "final_answer"}) ||
		sent[1].ToolChoice.Mode != "required" || len(sent[1].Tools) != 2 {
		t.Errorf("got %+v and %+v", sent[0].ToolChoice, sent[1].ToolChoice)
	}
}
