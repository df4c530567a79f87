package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// A quote is the smallest hosted tool whose own item holds a call and
// its output, which can be cited.
type quote struct{}

func quoteKind() tool.Kind {
	text := func(it berth.Item) string {
		var c quoteCall
		_ = it.Decode(&c)
		return c.Text
	}
	return tool.Kind{
		Type: "quote", Name: "quote",
		Rules: func(*tool.Registry) tool.Rules {
			offered := rule.Object(rule.Fields{"type": rule.AnyText})
			return tool.Rules{Tool: offered, Call: rule.Item(rule.Fields{"text": rule.AnyText}, "text")}
		},
		Bind: func(tool.Context, berth.Tool) (tool.Tool, error) { return quote{}, nil },
		Calls: &tool.Calls{Call: "quote_call", CallPrefix: "qu_",
			Hosted:    func(berth.Item) bool { return true },
			LowerCall: func(it berth.Item) (string, string, error) { return "quote", `{}`, nil },
			LowerOutput: func(it berth.Item) (json.RawMessage, error) {
				if it.Status() != berth.StatusCompleted {
					return nil, nil
				}
				return berth.StringDelta(text(it)), nil
			},
			Citables: func(it berth.Item) []tool.Citable {
				return []tool.Citable{{Mark: tool.MarkStart + "q" +
					tool.MarkEnd, Annotation: func(index, _ int) json.RawMessage {
					raw, _ := json.Marshal(map[string]any{"type": "file_citation", "file_id": "file-q",
						"filename": "q.txt", "index": index})
					return raw
				}}}
			}},
	}
}

func (quote) Spec() tool.Spec {
	return tool.Spec{Function: tool.Function("quote", "Returns a text.", json.RawMessage(`{"type":"object"}`)),
		Call: "quote_call"}
}

func (quote) NewCall(string) tool.Call {
	return &quoteCall{ID: berth.NewID("qu_"), Type: "quote_call", Status: berth.StatusInProgress}
}

func (quote) ResumeCall(berth.Item, berth.Item, []berth.Event) (tool.Call, error) { return nil, nil }

type quoteCall struct {
	ID     string       `json:"id"`
	Type   string       `json:"type"`
	Status berth.Status `json:"status"`
	Text   string       `json:"text"`
}

func (c *quoteCall) Item() berth.Item         { return berth.NewItem(c) }
func (*quoteCall) Write(string) []berth.Event { return nil }

func (c *quoteCall) Close(arguments string) ([]berth.Event, berth.Item, string) {
	_ = json.Unmarshal([]byte(arguments), c)
	return nil, berth.Item{}, ""
}

func (c *quoteCall) Run(ctx context.Context, out tool.Emitter) error {
	c.Status = berth.StatusCompleted
	return out.Done(ctx, out.Call(), c.Item())
}

// A call that holds its output is one item on the wire, and a call with its output for the model. The
// marks of its citables become annotations.
func TestCitingTool(t *testing.T) {
	t.Parallel()
	m := &playedModel{turns: [][]any{
		turn(model.Call{Index: 0, ID: "call_1", Name: "quote", Arguments: `{"text":"ahoy"}`},
			model.Call{Index: 1, ID: "call_2", Name: "quote", Arguments: `{"text":"land"}`}, stopped),
		turn(model.Text{Text: "Grüße 【q"}, model.Text{Text: "】 and 【x】."}, stopped)}}
	h := newHouseWith(t, []tool.Kind{quoteKind()}, nil, model.Rule{Match: "played", Provider: m})
	handler := api.New(h.opts)
	status, body := post(t, handler, `{"model":"played","input":"Quote.","tools":[{"type":"quote"}]}`)
	var r berth.Response
	if err := json.Unmarshal([]byte(body), &r); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	var got []string
	for _, it := range r.Output {
		got = append(got, string(it.Type())+" "+string(it.Status()))
	}
	if diff := cmp.Diff([]string{"quote_call completed", "quote_call completed", "message completed"},
		got); diff != "" {
		t.Fatalf("output (-want +got):\n%s", diff)
	}
	var shown []string
	for _, it := range m.asked[1].Items[1:] {
		shown = append(shown, string(it.Type())+" "+it.CallID())
	}
	first, second := r.Output[0].ID(), r.Output[1].ID()
	if diff := cmp.Diff([]string{"function_call " + first, "function_call_output " + first, "function_call " + second,
		"function_call_output " + second}, shown); diff != "" {
		t.Errorf("shown to the model (-want +got):\n%s", diff)
	}
	var message berth.Message
	check(t, r.Output[2].Decode(&message))
	if text := message.Content[0].Text; text != "Grüße  and 【x】." {
		t.Errorf("text: got %q", text)
	}
	want := []json.RawMessage{json.RawMessage(
		`{"file_id":"file-q","filename":"q.txt","index":6,"type":"file_citation"}`)}
	if diff := cmp.Diff(want, message.Content[0].Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}
