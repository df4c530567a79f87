package engine

import (
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// A guard enforces the guard rails of one response: its checks (check.go), approvals
// (approval.go) and budget (budget.go). It has no state of its own, so that a resumed run
// decides as the interrupted one did.
type guard struct {
	rails     berth.RequestBerth // of the request; zero if it sets none
	limits    berth.Budget       // of the server
	createdAt int64              // of the response, in Unix seconds
	tools     toolset
	kinds     *tool.Registry
}

func newGuard(rec *store.Response, tools toolset, e *Engine) guard {
	g := guard{limits: e.Limits.Budget, createdAt: rec.Body.CreatedAt, tools: tools, kinds: e.Tools}
	if rec.Request.Berth != nil {
		g.rails = *rec.Request.Berth
	}
	return g
}

// openCall returns a hosted call that the engine makes itself, and the events that show it
// at a place of the output. mark records why the engine made it.
func (g *guard) openCall(place int, name, arguments string, mark berth.CallBerth) ([]berth.Event, tool.Call) {
	call := g.tools.byName[name].NewCall(berth.NewID(berth.PrefixCall))
	if m, ok := call.(tool.Markable); ok {
		m.Mark(mark)
		opened := call.Item()
		written := call.Write(arguments)
		events, item, _ := call.Close(arguments)
		if opened.IsZero() {
			opened = call.Item() // it is shown once it is complete
		}
		all := slices.Concat([]berth.Event{added(place, opened)}, at(place, written), at(place, events))
		if !g.kinds.HoldsOutput(item) {
			all = append(all, done(place, item))
		}
		return all, call
	}
	opened := with(call.Item(), map[string]any{"berth": mark})
	events, item, _ := call.Close(arguments)
	mark.Invalid = g.kinds.MarkOf(item).Invalid
	return append(append([]berth.Event{added(place, opened)}, at(place, events)...),
		done(place, with(item, map[string]any{"berth": mark}))), call
}
