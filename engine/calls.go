package engine

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// An openCall is a call that the model is writing.
type openCall struct {
	tool.Call
	id      string // call_id
	name    string // of the function that the model calls
	hosted  bool   // the server runs it
	ignored bool
	closed  bool
	shown   bool            // its item was opened
	index   int             // of its item in the output, once shown
	text    strings.Builder // the arguments so far
}

// writeCall adds arguments to a call. It opens the call's item once the call has one to
// show.
func (w *turnWriter) writeCall(d model.Call) []berth.Event {
	c, ok := w.calls[d.Index]
	if !ok {
		c = w.open(d)
		w.calls[d.Index] = c
	}
	if c.ignored || c.closed {
		return nil
	}
	var events []berth.Event
	if d.Arguments != "" {
		c.text.WriteString(d.Arguments)
		events = c.Write(d.Arguments)
	}
	return append(w.show(c), at(c.index, events)...)
}

// open returns a new call. A hosted tool within max_tool_calls or the client answers it. A
// call of an unknown function is refused.
func (w *turnWriter) open(d model.Call) *openCall {
	r := w.run
	c := &openCall{id: d.ID, name: d.Name}
	if c.id == "" {
		c.id = berth.NewID(berth.PrefixCall)
	}
	t := r.tools.byName[d.Name]
	if t == nil {
		c.Call = tool.Unknown(d.Name)
		return c
	}
	if !t.callers.Model {
		c.Call = tool.Refused(fmt.Sprintf("Only programs can call %q. Call it in the code of %s.", d.Name, berth.ToolProgrammatic))
		return c
	}
	if c.hosted = !t.Spec().Client; c.hosted {
		if r.withheld() {
			c.ignored, w.ignored = true, true
			return c
		}
		r.hostedCalls++
	}
	c.Call = t.NewCall(c.id)
	if c.hosted {
		c.Call = r.guard.hold(c.Call, t)
		r.beginContainer(c.Call, t)
	}
	return c
}

// show opens the item of a call that has one and is not shown yet.
func (w *turnWriter) show(c *openCall) []berth.Event {
	if c.shown || c.Item().IsZero() {
		return nil
	}
	item := c.Item()
	events := append(w.closeText(false), w.closeWhole(c)...)
	c.shown = true
	return append(events, w.place(&c.index, item))
}

// closeWhole closes the calls with complete arguments, except next. The hosted service
// does the same before it continues with text or with another call. Interleaved calls stay
// open together.
func (w *turnWriter) closeWhole(next *openCall) []berth.Event {
	return w.closeCalls(func(c *openCall) bool { return c != next && json.Valid([]byte(c.text.String())) })
}

// closeCalls closes the calls for which ready returns true, in the model's order.
func (w *turnWriter) closeCalls(ready func(*openCall) bool) []berth.Event {
	var events []berth.Event
	for _, i := range slices.Sorted(maps.Keys(w.calls)) {
		if c := w.calls[i]; !c.closed && !c.ignored && ready(c) {
			events = append(events, w.closeCall(c)...)
		}
	}
	return events
}

func (w *turnWriter) closeCall(c *openCall) []berth.Event {
	c.closed = true
	events, item, refusal := c.Close(c.text.String())
	if refusal != "" {
		w.refuse(c, refusal)
	}
	var out []berth.Event
	if !c.shown && !c.Item().IsZero() {
		c.shown = true
		out = append(w.closeText(false), w.place(&c.index, c.Item()))
	}
	if !c.shown {
		return nil
	}
	if held, ok := c.Call.(*heldCall); ok && held.waits {
		c.hosted = false
	}
	out = append(out, at(c.index, events)...)
	if c.hosted && refusal == "" {
		w.run.pending = append(w.run.pending, pendingCall{Call: c.Call, index: c.index})
		if w.run.engine.Tools.HoldsOutput(item) {
			return out
		}
	} else if refusal == "" {
		w.run.engine.Observer.Called(item.Type(), OutcomeClient, 0)
	}
	return append(out, done(c.index, item))
}

// maxRefusedTurns is the number of consecutive turns with only refused calls that fails a
// response.
const maxRefusedTurns = 5

// A refusal is a refused call with an output that explains why. Only the model sees it; it
// is not stored, and a resumed run has lost it.
type refusal struct {
	place int // in the output, of the item that follows
	items [2]berth.Item
}

// refuse records a call that can neither run nor be passed to the client, for the next
// turn.
func (w *turnWriter) refuse(c *openCall, reason string) {
	w.run.log().Warn("refused call", "function", c.name, "reason", reason)
	w.refusal = reason
	id := berth.NewID(berth.PrefixCall) // a new one, because the shown part of the call has no output
	w.run.refusals = append(w.run.refusals, refusal{w.next, [2]berth.Item{
		berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, Status: berth.StatusCompleted, CallID: id, Name: c.name, Arguments: c.text.String()}),
		berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, Status: berth.StatusCompleted, CallID: id, Output: berth.StringDelta(reason)}),
	}})
}

// withRefusals returns the output with the refused calls in their places.
func (r *run) withRefusals(output []berth.Item) []berth.Item {
	out := make([]berth.Item, 0, len(output)+2*len(r.refusals))
	copied := 0
	for _, f := range r.refusals {
		out = append(append(out, output[copied:f.place]...), f.items[:]...)
		copied = f.place
	}
	return append(out, output[copied:]...)
}

// at sets the output index of events.
func at(index int, events []berth.Event) []berth.Event {
	for i := range events {
		events[i].OutputIndex = &index
	}
	return events
}

// withheld reports whether max_tool_calls is reached. Hosted tools are then no longer
// offered, and their calls are ignored before they have an effect.
func (r *run) withheld() bool {
	limit := r.record.Body.MaxToolCalls
	return limit != nil && r.hostedCalls >= *limit
}
