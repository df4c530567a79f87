package chat

import (
	"encoding/json"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// maxCallID bounds an id that is kept as the upstream gave it; it is the bound on
// call_id in Responses.
const maxCallID = 64

// calls puts the calls of one answer together. By the documentation a call opens
// with index, id and name, and more arguments follow under its index. Upstreams
// differ: some leave out the index or count all calls as 0, some give no id or a
// new one with each piece, some cut the name or repeat it, some send calls whole.
type calls struct {
	all   []*call // in the order in which they began
	items []berth.Item
	ids   map[string]bool // that are taken, by the conversation or this answer; nil until needed
}

// A call is one that has begun. It is told when its name is known to be whole:
// when its arguments begin, the next call begins, or the answer ends.
type call struct {
	index     *int   // the upstream's
	id        string // the upstream's
	name      string
	arguments strings.Builder
	told      bool
}

// take adds a piece and appends what there is to tell.
func (c *calls) take(p *piece, out []model.Delta) []model.Delta {
	n := c.find(p)
	if n < 0 || c.all[n].endedBefore(p) {
		out = c.tellAll(out)
		c.all = append(c.all, &call{index: p.Index})
		n = len(c.all) - 1
	}
	a := c.all[n]
	if a.told {
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
		a.name = name // the name again, or more of it from the start
	} else {
		a.name += name
	}
	a.arguments.WriteString(string(p.Function.Arguments))
	if a.arguments.Len() > 0 && a.name != "" {
		out = c.tell(n, out)
	}
	return out
}

// find returns the call that a piece belongs to: the one of its id and index, or
// the last of its index, or the last of all where there is no index. -1 is none.
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

// endedBefore reports whether a piece begins another call although it points to
// this one. Only a name can begin a call.
func (a *call) endedBefore(p *piece) bool {
	if p.Function.Name == "" {
		return false
	}
	if p.ID != "" && a.id != "" {
		return p.ID != a.id
	}
	return p.Function.Arguments != "" && json.Valid([]byte(a.arguments.String()))
}

// tell tells that a call began, with what is known of its arguments.
func (c *calls) tell(n int, out []model.Delta) []model.Delta {
	a := c.all[n]
	a.told = true
	return append(out, model.Call{Index: n, ID: c.unique(a.id), Name: a.name, Arguments: a.arguments.String()})
}

// unique returns id, or a new one if that is empty, too long, or was there before
// in the conversation: an output is found by its call's id.
func (c *calls) unique(id string) string {
	if c.ids == nil {
		c.ids = map[string]bool{}
		for _, it := range c.items {
			c.ids[it.CallID()] = true
		}
	}
	if id == "" || len(id) > maxCallID || c.ids[id] {
		id = berth.NewID(berth.PrefixCall)
	}
	c.ids[id] = true
	return id
}

// tellAll tells the calls that have a name and have not been told.
func (c *calls) tellAll(out []model.Delta) []model.Delta {
	for n, a := range c.all {
		if !a.told && a.name != "" {
			out = c.tell(n, out)
		}
	}
	return out
}

// nameless reports whether a call never got a name.
func (c *calls) nameless() bool {
	for _, a := range c.all {
		if a.name == "" {
			return true
		}
	}
	return false
}
