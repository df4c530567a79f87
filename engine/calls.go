package engine

import (
	"encoding/json"
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
	shown   bool            // its item is open
	index   int             // of its item in the output, once shown
	text    strings.Builder // the arguments so far
}

// call tells more of a call. Its item is opened as soon as there is something to
// show.
func (s *speech) call(d model.Call) []berth.Event {
	c, ok := s.calls[d.Index]
	if !ok {
		c = s.open(d)
		s.calls[d.Index] = c
	}
	if c.ignored || c.closed {
		return nil
	}
	var told []berth.Event
	if d.Arguments != "" {
		c.text.WriteString(d.Arguments)
		told = c.Write(d.Arguments)
	}
	return append(s.show(c), at(c.index, told)...)
}

// open decides who answers a call: a hosted tool within the bound of
// max_tool_calls, or the client. One of a name that nobody offered is refused.
func (s *speech) open(d model.Call) *openCall {
	r := s.run
	c := &openCall{id: d.ID, name: d.Name}
	if c.id == "" {
		c.id = berth.NewID(berth.PrefixCall)
	}
	t := r.tools.byName[d.Name]
	if t == nil {
		c.Call = tool.Unknown(d.Name)
		return c
	}
	if c.hosted = !t.Spec().Client; c.hosted {
		if r.withheld() {
			c.ignored, s.ignored = true, true
			return c
		}
		r.hostedCalls++
	}
	c.Call = t.NewCall(c.id)
	if c.hosted {
		c.Call = r.hold(c.Call, t)
	}
	return c
}

// show opens a call's item once it has one.
func (s *speech) show(c *openCall) []berth.Event {
	if c.shown || c.Item().IsZero() {
		return nil
	}
	item := c.Item()
	events := append(s.closeWords(false), s.closeWhole(c)...)
	c.shown = true
	return append(events, s.place(&c.index, item))
}

// closeWhole closes the calls that are complete, as the hosted service does
// before it goes on, with next or with words. Calls that come interleaved stay
// open side by side.
func (s *speech) closeWhole(next *openCall) []berth.Event {
	return s.closeCalls(func(c *openCall) bool { return c != next && json.Valid([]byte(c.text.String())) })
}

// closeCalls closes those calls for which ready holds, in the model's order.
func (s *speech) closeCalls(ready func(*openCall) bool) []berth.Event {
	var events []berth.Event
	for _, i := range slices.Sorted(maps.Keys(s.calls)) {
		if c := s.calls[i]; !c.closed && !c.ignored && ready(c) {
			events = append(events, s.closeCall(c)...)
		}
	}
	return events
}

func (s *speech) closeCall(c *openCall) []berth.Event {
	c.closed = true
	events, item, refusal := c.Close(c.text.String())
	if refusal != "" {
		s.refuse(c, refusal)
	}
	var out []berth.Event
	if !c.shown && !c.Item().IsZero() {
		c.shown = true
		out = append(s.closeWords(false), s.place(&c.index, c.Item()))
	}
	if !c.shown {
		return nil
	}
	if held, ok := c.Call.(*heldCall); ok && held.waits {
		c.hosted = false
	}
	if c.hosted {
		s.run.pending = append(s.run.pending, c.Call)
	} else if refusal == "" {
		s.run.engine.Observer.Called(item.Type(), OutcomeClient, 0)
	}
	return append(append(out, at(c.index, events)...), done(c.index, item))
}

// maxRefused is how many turns in a row may bring nothing but refused calls.
const maxRefused = 5

// An aside is a call that was refused, and the words of the refusal. It is told
// to the model only, and only by the run that heard the call.
type aside struct {
	place int // in the output, of what follows it
	items [2]berth.Item
}

// refuse keeps a call that can neither be run nor be handed to the client for the
// next turn.
func (s *speech) refuse(c *openCall, refusal string) {
	s.run.log().Warn("a call was refused", "function", c.name, "why", refusal)
	s.refused = refusal
	id := berth.NewID(berth.PrefixCall) // of its own: what was shown of the call has no output
	s.run.asides = append(s.run.asides, aside{s.next, [2]berth.Item{
		berth.NewItem(berth.FunctionCall{Type: berth.ItemFunctionCall, Status: berth.StatusCompleted, CallID: id, Name: c.name, Arguments: c.text.String()}),
		berth.NewItem(berth.FunctionCallOutput{Type: berth.ItemFunctionCallOutput, Status: berth.StatusCompleted, CallID: id, Output: berth.StringDelta(refusal)}),
	}})
}

// withAsides returns the output with the refused calls in their places.
func (r *run) withAsides(output []berth.Item) []berth.Item {
	out := make([]berth.Item, 0, len(output)+2*len(r.asides))
	taken := 0
	for _, a := range r.asides {
		out = append(append(out, output[taken:a.place]...), a.items[:]...)
		taken = a.place
	}
	return append(out, output[taken:]...)
}

// at puts events at a place of the output.
func at(index int, events []berth.Event) []berth.Event {
	for i := range events {
		events[i].OutputIndex = &index
	}
	return events
}

// withheld reports whether max_tool_calls has been used up: hosted tools are no
// longer offered, and calls of them are ignored before they have an effect.
func (r *run) withheld() bool {
	limit := r.record.Body.MaxToolCalls
	return limit != nil && r.hostedCalls >= *limit
}
