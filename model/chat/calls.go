package chat

import (
	"encoding/json"
	"strings"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// calls assembles the calls of one answer. As documented, a call starts with index, id
// and name, and more arguments follow under its index. Upstreams differ: some omit the
// index or number all calls 0, some send no id or a new one with each piece, some
// split or repeat the name, some send whole calls.
type calls struct {
	all []*call // in the order of their starts
	ids dialogue.NewIDs
}

// A call is a call that has started. It is emitted when its name is complete: when its
// arguments or the next call start, or the answer ends.
type call struct {
	index     *int   // the upstream's
	id        string // the upstream's
	name      string
	arguments strings.Builder
	emitted   bool
	custom    bool // of a custom tool; its arguments lack their end
}

// take adds a piece and appends the deltas that are ready.
func (c *calls) take(p *piece, out []model.Delta) []model.Delta {
	n := c.find(p)
	custom := p.Custom
	if n < 0 || c.all[n].endedBefore(p) {
		out = c.emitAll(out)
		c.all = append(c.all, &call{index: p.Index, custom: custom != nil})
		n = len(c.all) - 1
		if custom != nil {
			p = p.fromCustom(true)
		}
	} else if custom != nil {
		p = p.fromCustom(false)
	}
	a := c.all[n]
	if a.emitted {
		if p.Function.Arguments != "" {
			a.arguments.WriteString(string(p.Function.Arguments))
			out = append(out, model.Call{Index: n, Arguments: string(p.Function.Arguments)})
		}
		return out
	}
	if p.ID != "" {
		a.id = p.ID
	}
	if name := p.Function.Name; strings.HasPrefix(name, a.name) {
		a.name = name // repeated, or repeated and extended
	} else {
		a.name += name
	}
	a.arguments.WriteString(string(p.Function.Arguments))
	if a.arguments.Len() > 0 && a.name != "" {
		out = c.emit(n, out)
	}
	return out
}

// find returns the index of the call that a piece belongs to, or -1: the call with its
// id and index, or the last call with its index, or the last call if it has no index.
func (c *calls) find(p *piece) int {
	same := func(a *call) bool { return p.Index == nil || a.index != nil && *a.index == *p.Index }
	found := -1
	for n := len(c.all) - 1; n >= 0; n-- {
		a := c.all[n]
		if p.ID != "" && p.ID == a.id && same(a) {
			return n
		}
		if found < 0 && same(a) && (p.Index != nil || p.ID == "" || a.id == "") {
			found = n
		}
	}
	return found
}

// endedBefore reports whether a piece starts another call although it points to this
// one. Only a piece with a name starts a call.
func (a *call) endedBefore(p *piece) bool {
	if p.Function.Name == "" && (p.Custom == nil || p.Custom.Name == "") {
		return false
	}
	if p.ID != "" && a.id != "" {
		return p.ID != a.id
	}
	return p.Function.Arguments != "" && json.Valid([]byte(a.arguments.String()))
}

// emit appends the start of a call with the arguments so far.
func (c *calls) emit(n int, out []model.Delta) []model.Delta {
	a := c.all[n]
	a.emitted = true
	return append(out, model.Call{Index: n, ID: c.ids.For(a.id), Name: a.name, Arguments: a.arguments.String()})
}

// emitAll emits the named calls that have not been emitted.
func (c *calls) emitAll(out []model.Delta) []model.Delta {
	for n, a := range c.all {
		if !a.emitted && a.name != "" {
			out = c.emit(n, out)
		}
	}
	return out
}

// nameless reports whether a call has no name.
func (c *calls) nameless() bool {
	for _, a := range c.all {
		if a.name == "" {
			return true
		}
	}
	return false
}
