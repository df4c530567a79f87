package chat

import (
	"encoding/json"
	"strings"

	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// calls puts the calls of one answer together. By the documentation a call opens
// with index, id and name, and more arguments follow under its index. Upstreams
// differ: some leave out the index or count all calls as 0, some give no id or a
// new one with each piece, some cut the name or repeat it, some send calls whole.
type calls struct {
	all []*call // in the order in which they began
	ids dialogue.NewIDs
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
	return append(out, model.Call{Index: n, ID: c.ids.For(a.id), Name: a.name, Arguments: a.arguments.String()})
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
