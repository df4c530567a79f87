package engine

import (
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

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
		c.Call = tool.Refused(fmt.Sprintf("Only programs can call %q. Call it in the code of %s.", d.Name,
			berth.ToolProgrammatic))
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
		if _, held := c.Call.(*heldCall); !held && t.kind.Container != nil { // a held call may never be made
			r.reservations.begin(r.engine, r.record.Project, r.record.Container)
		}
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

// maxRefusedTurns is the number of consecutive turns with only refused calls that fails a
// response.
const maxRefusedTurns = 5
