package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// An openCall is a call that the model is writing: of a hosted tool, or of a
// function of the client's.
type openCall struct {
	index    int       // of its item in the output
	hosted   tool.Call // nil for a function of the client's
	function berth.FunctionCall
	text     strings.Builder // the arguments so far
	client   bool            // the client answers it
	ignored  bool
	closed   bool
}

// call tells more of a call. A call that was complete is closed when the next
// one begins, as the hosted service does; calls that come interleaved stay open
// side by side.
func (s *speech) call(d model.Call, next int) []berth.Event {
	c, ok := s.calls[d.Index]
	var events []berth.Event
	if !ok {
		events = s.closeCalls(func(c *openCall) bool { return json.Valid([]byte(c.text.String())) })
		c = s.open(d, next)
		s.calls[d.Index] = c
		if !c.ignored {
			events = append(events, added(c.index, c.item()))
		}
	}
	if c.ignored || c.closed || d.Arguments == "" {
		return events
	}
	c.text.WriteString(d.Arguments)
	if c.hosted == nil {
		return append(events, berth.Event{Type: berth.EventFunctionArgumentsDelta, ItemID: c.function.ID,
			OutputIndex: &c.index, Delta: berth.StringDelta(d.Arguments)})
	}
	return append(events, at(c.index, c.hosted.Write(d.Arguments))...)
}

// open decides who answers a call: a hosted tool within the bound of
// max_tool_calls, the client, or, for a name that nobody offered, an error.
func (s *speech) open(d model.Call, next int) *openCall {
	r := s.run
	callID := d.ID
	if callID == "" {
		callID = berth.NewID(berth.PrefixCall)
	}
	c := &openCall{index: next, function: berth.FunctionCall{ID: berth.NewID(berth.PrefixFunctionCall),
		Type: berth.ItemFunctionCall, Status: berth.StatusInProgress, CallID: callID, Name: d.Name}}
	hosted, isHosted := r.tools.hosted[d.Name]
	switch {
	case isHosted:
		c.client = hosted.Spec().Client
		if r.withheld() && !c.client {
			c.ignored, s.ignored = true, true
			return c
		}
		r.hostedCalls++
		c.hosted = hosted.NewCall(berth.NewID(berth.PrefixShellCall), callID)
	case r.tools.functions[d.Name]:
		c.client = true
	default:
		c.hosted = &unknownCall{function: c.function}
	}
	return c
}

func (c *openCall) item() berth.Item {
	if c.hosted != nil {
		return c.hosted.Item()
	}
	return berth.NewItem(c.function)
}

// closeCalls closes those calls for which ready holds, in the model's order.
func (s *speech) closeCalls(ready func(*openCall) bool) []berth.Event {
	var events []berth.Event
	for _, i := range slices.Sorted(maps.Keys(s.calls)) {
		if ready(s.calls[i]) {
			events = append(events, s.closeCall(s.calls[i])...)
		}
	}
	return events
}

func (s *speech) closeCall(c *openCall) []berth.Event {
	if c.closed || c.ignored {
		return nil
	}
	c.closed = true
	if c.hosted != nil {
		events, item := c.hosted.Close()
		if !c.client {
			s.run.pending = append(s.run.pending, pendingCall{c.hosted, c.index})
		}
		return append(at(c.index, events), done(c.index, item))
	}
	arguments := c.text.String()
	c.function.Arguments, c.function.Status = arguments, berth.StatusCompleted
	return []berth.Event{
		{Type: berth.EventFunctionArgumentsDone, ItemID: c.function.ID, Name: c.function.Name, OutputIndex: &c.index, Arguments: &arguments},
		done(c.index, berth.NewItem(c.function)),
	}
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

// An unknownCall calls a function that nobody offered. The model is told; the
// client, which could not answer it either, sees both items.
type unknownCall struct {
	function  berth.FunctionCall
	arguments strings.Builder
}

func (c *unknownCall) Item() berth.Item { return berth.NewItem(c.function) }

func (c *unknownCall) Write(arguments string) []berth.Event {
	c.arguments.WriteString(arguments)
	return []berth.Event{{Type: berth.EventFunctionArgumentsDelta, ItemID: c.function.ID, Delta: berth.StringDelta(arguments)}}
}

func (c *unknownCall) Close() ([]berth.Event, berth.Item) {
	arguments := c.arguments.String()
	c.function.Arguments, c.function.Status = arguments, berth.StatusCompleted
	return []berth.Event{{Type: berth.EventFunctionArgumentsDone, ItemID: c.function.ID, Name: c.function.Name, Arguments: &arguments}}, c.Item()
}

func (c *unknownCall) Run(ctx context.Context, out tool.Emitter) error {
	text := fmt.Sprintf("There is no function named %q. Use one of the functions that you were given.", c.function.Name)
	item := berth.NewItem(berth.FunctionCallOutput{ID: berth.NewID(berth.PrefixFunctionOutput), Type: berth.ItemFunctionCallOutput,
		Status: berth.StatusCompleted, CallID: c.function.CallID, Output: berth.StringDelta(text)})
	index, err := out.Add(ctx, item)
	if err != nil {
		return err
	}
	return out.Done(ctx, index, item)
}
