package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// A mirror is a hosted tool whose calls hold their own output: {"text":"ab"} is answered
// with "ba" once the test lets it.
type mirror struct{ gate chan struct{} }

const mirrorStarted berth.EventType = "response.mirror_call.started"

func mirrorKind(m mirror) tool.Kind {
	decoded := func(it berth.Item) (c mirrorCall, err error) { return c, it.Decode(&c) }
	return tool.Kind{
		Type: "mirror", Name: "mirror",
		Rules: func(*tool.Registry) tool.Rules {
			return tool.Rules{Tool: rule.Object(rule.Fields{"type": rule.AnyText}),
				Call: rule.Item(rule.Fields{"text": rule.AnyText}, "text")}
		},
		Bind: func(tool.Context, berth.Tool) (tool.Tool, error) { return m, nil },
		Calls: &tool.Calls{Call: "mirror_call", CallPrefix: "mi_", Hosted: func(berth.Item) bool { return true },
			LowerCall: func(it berth.Item) (name, arguments string, err error) {
				c, err := decoded(it)
				raw, _ := json.Marshal(map[string]string{"text": c.Text})
				return "mirror", string(raw), err
			},
			LowerOutput: func(it berth.Item) (json.RawMessage, error) {
				c, err := decoded(it)
				if err != nil || c.Output == nil {
					return nil, err
				}
				return berth.StringDelta(*c.Output), nil
			}},
	}
}

func (mirror) Spec() tool.Spec {
	return tool.Spec{Function: tool.Function("mirror", "Mirrors a text.", json.RawMessage(`{"type":"object"}`)),
		Call: "mirror_call"}
}

func (m mirror) NewCall(string) tool.Call {
	return &mirrorCall{gate: m.gate, ID: berth.NewID("mi_"), Type: "mirror_call", Status: berth.StatusInProgress}
}

func (m mirror) ResumeCall(item, _ berth.Item, stored []berth.Event) (tool.Call, error) {
	c := &mirrorCall{gate: m.gate}
	for _, ev := range stored {
		if ev.Type == mirrorStarted {
			c.again, c.Text = true, *ev.Arguments
		}
	}
	if !c.again {
		return nil, nil
	}
	text := c.Text
	err := item.Decode(c)
	c.Text = text
	return c, err
}

type mirrorCall struct {
	gate  chan struct{}
	again bool

	ID     string       `json:"id"`
	Type   string       `json:"type"`
	Status berth.Status `json:"status"`
	Text   string       `json:"text"`
	Output *string      `json:"output"`
}

func (c *mirrorCall) Item() berth.Item         { return berth.NewItem(c) }
func (*mirrorCall) Write(string) []berth.Event { return nil }

func (c *mirrorCall) Close(arguments string) ([]berth.Event, berth.Item, string) {
	_ = json.Unmarshal([]byte(arguments), c)
	return nil, c.Item(), ""
}

func (c *mirrorCall) Run(ctx context.Context, out tool.Emitter) error {
	if !c.again {
		if err := out.Emit(ctx, out.Call(), berth.Event{Type: mirrorStarted, ItemID: c.ID,
			Arguments: &c.Text}); err != nil {
			return err
		}
	}
	select {
	case <-c.gate:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var b strings.Builder
	for _, r := range c.Text {
		old := b.String()
		b.Reset()
		b.WriteString(string(r) + old)
	}
	answer := b.String()
	c.Status, c.Output = berth.StatusCompleted, &answer
	return out.Done(ctx, out.Call(), c.Item())
}

func newMirrorHouse(t *testing.T, m mirror, turns ...turn) *house {
	t.Helper()
	h := newHouse(t, turns...)
	h.stop()
	h.kinds = []tool.Kind{mirrorKind(m)}
	h.start()
	return h
}

// mirrors returns the text and the output of each item that has them.
func mirrors(t *testing.T, items []berth.Item) []string {
	t.Helper()
	var out []string
	for _, it := range items {
		var c mirrorCall
		decode(t, it, &c)
		line := string(it.Type()) + " " + string(it.Status()) + " " + c.Text
		if c.Output != nil {
			line += " " + *c.Output
		}
		out = append(out, strings.TrimSpace(line))
	}
	return out
}

// A call that holds its own output stays open until it has run. Its item is one for the
// client and two for the model.
func TestCallThatHoldsItsOutput(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	close(gate)
	h := newMirrorHouse(t, mirror{gate}, turn{
		model.Call{Index: 0, ID: "call_1", Name: "mirror", Arguments: `{"text":"ab"}`},
		model.Call{Index: 1, ID: "call_2", Name: "mirror", Arguments: `{"text":"cd"}`},
	}, say("ok"))
	r := h.final(h.create(`{"model":"played","input":"x","tools":[{"type":"mirror"}]}`).ID)
	want := []string{"mirror_call completed ab ba", "mirror_call completed cd dc", "message completed"}
	if diff := cmp.Diff(want, mirrors(t, r.Output)); diff != "" || r.Status != berth.StatusCompleted {
		t.Errorf("status %s, output (-want +got):\n%s", r.Status, diff)
	}
	var shown []string
	for _, it := range h.model.requests[1].Items[1:] {
		var f struct {
			Arguments, Output string
			CallID            string `json:"call_id"`
		}
		decode(t, it, &f)
		id := map[string]string{r.Output[0].ID(): "first", r.Output[1].ID(): "second"}[f.CallID]
		shown = append(shown, strings.TrimSpace(string(it.Type())+" "+id+" "+f.Arguments+f.Output))
	}
	want = []string{`function_call first {"text":"ab"}`, "function_call_output first ba",
		`function_call second {"text":"cd"}`, "function_call_output second dc"}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("the model sees (-want +got):\n%s", diff)
	}
	next := h.final(h.create(`{"model":"played","input":"y","previous_response_id":"` + string(r.ID) + `"}`).ID)
	if n := len(h.model.requests[2].Items); n != 7 || next.Status != berth.StatusCompleted {
		t.Errorf("the chain continues with %d items, want 7, and status %s", n, next.Status)
	}
}

// After a crash, a call that was started is resumed, and one that was not is closed as
// incomplete: the model makes it again.
func TestResumeCallThatHoldsItsOutput(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	h := newMirrorHouse(t, mirror{gate}, turn{
		model.Call{Index: 0, ID: "call_1", Name: "mirror", Arguments: `{"text":"ab"}`},
		model.Call{Index: 1, ID: "call_2", Name: "mirror", Arguments: `{"text":"cd"}`},
	}, call("call_3", "mirror", `{"text":"cd"}`), say("ok"))
	id := h.create(`{"model":"played","input":"x","background":true,"tools":[{"type":"mirror"}]}`).ID
	h.waitFor(id, mirrorStarted)
	h.stop()
	h.start()
	if err := h.engine.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(gate)
	r := h.final(id)
	want := []string{"mirror_call completed ab ba", "mirror_call incomplete", "mirror_call completed cd dc",
		"message completed"}
	if diff := cmp.Diff(want, mirrors(t, r.Output)); diff != "" || r.Status != berth.StatusCompleted {
		t.Errorf("status %s, output (-want +got):\n%s", r.Status, diff)
	}
}

// A call that is cancelled before it runs is incomplete, and not shown to the model.
func TestCancelCallThatHoldsItsOutput(t *testing.T) {
	t.Parallel()
	h := newMirrorHouse(t, mirror{make(chan struct{})}, call("call_1", "mirror", `{"text":"ab"}`), say("ok"))
	id := h.create(`{"model":"played","input":"x","background":true,"tools":[{"type":"mirror"}]}`).ID
	h.waitFor(id, mirrorStarted)
	r, err := h.engine.Cancel(t.Context(), caller, id)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"mirror_call incomplete"}, mirrors(t, r.Output)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	h.final(h.create(`{"model":"played","input":"y","previous_response_id":"` + string(id) + `"}`).ID)
	if n := len(h.model.requests[1].Items); n != 2 {
		t.Errorf("the chain continues with %d items, want 2", n)
	}
}
