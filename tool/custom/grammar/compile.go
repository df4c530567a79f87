package grammar

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

//go:embed common.lark
var commonText string

// common returns the terminals of "%import common".
var common = sync.OnceValue(func() *file {
	f, err := parse(commonText)
	if err != nil {
		panic(err)
	}
	return f
})

// resolve adds the imported terminals.
func (f *file) resolve() (err error) {
	defer caught(&err)
	for _, i := range f.imports {
		d := common().defs[i[0].text]
		if d == nil {
			return i[0].fail("common has no terminal %s", i[0])
		}
		f.add(&definition{name: i[1], body: d.body, from: d.from})
	}
	return nil
}

// A compiler makes the network of a file.
type compiler struct {
	*builder
	rules   map[*definition]int32 // of rules and terminals
	pending []*definition         // reserved, not defined yet
	open    []*definition         // terminals in construction, each within the one before
	ignore  int32                 // the rule of what %ignore names; -1 if nothing
}

// compile returns the grammar of a file.
func (f *file) compile() (*Grammar, error) {
	if err := f.resolve(); err != nil {
		return nil, err
	}
	start := f.defs["start"]
	if start == nil {
		return nil, &SyntaxError{Reason: `the grammar needs a rule named "start"`}
	}
	c := &compiler{builder: newBuilder(), rules: map[*definition]int32{}, ignore: -1}
	c.ignored(f)
	for _, d := range f.order {
		c.reference(d) // unused ones too: their errors are the client's to know
	}
	whole := c.rule(func(s *section) {
		s.call(c.reference(start))
		c.skip(s)
	})
	for len(c.pending) > 0 && c.err == nil {
		d := c.pending[0]
		c.pending = c.pending[1:]
		c.define(c.rules[d], -1, func(s *section) { c.emit(s, d.from, d.body) })
	}
	return c.finish(whole)
}

// ignored makes the rule of what %ignore names.
func (c *compiler) ignored(f *file) {
	if len(f.ignore) == 0 {
		return
	}
	var each []int32
	for _, e := range f.ignore {
		id := c.terminal("ignored text", func(s *section) { c.emit(s, f, e) })
		c.net.greedy[id] = true
		each = append(each, id)
	}
	c.ignore = c.rule(func(s *section) {
		s.repeat(0, -1, func() {
			var bodies []func()
			for _, id := range each {
				bodies = append(bodies, func() { s.call(id) })
			}
			s.either(bodies)
		})
	})
}

// skip allows what %ignore names.
func (c *compiler) skip(s *section) {
	if c.ignore >= 0 {
		s.call(c.ignore)
	}
}

// reference returns the rule of a definition. A rule is defined later, because it may be
// recursive.
func (c *compiler) reference(d *definition) int32 {
	if id, ok := c.rules[d]; ok {
		return id
	}
	if d.name.kind == tokTerminal {
		id := c.terminal(d.name.text, func(s *section) { c.within(s, d) })
		c.rules[d] = id
		return id
	}
	id := c.reserve()
	c.rules[d] = id
	c.pending = append(c.pending, d)
	return id
}

// within continues a terminal with the content of another one.
func (c *compiler) within(s *section, d *definition) {
	for _, outer := range c.open {
		if outer == d {
			c.failAt(d.name, "the terminal %s refers to itself; only rules, in lower case, can do that", d.name)
			return
		}
	}
	c.open = append(c.open, d)
	c.emit(s, d.from, d.body)
	c.open = c.open[:len(c.open)-1]
}

// failAt records the first error, with its place.
func (c *compiler) failAt(t token, format string, args ...any) {
	if c.err == nil {
		c.err = t.fail(format, args...)
	}
}

// emit continues a section with an expression, whose names are those of a file.
func (c *compiler) emit(s *section, f *file, e expr) {
	if c.err != nil {
		return
	}
	switch e := e.(type) {
	case choice:
		var bodies []func()
		for _, each := range e {
			bodies = append(bodies, func() { c.emit(s, f, each) })
		}
		s.either(bodies)
	case sequence:
		for _, each := range e {
			c.emit(s, f, each)
		}
	case repeated:
		s.repeat(e.least, e.most, func() { c.emit(s, f, e.body) })
	case reference:
		c.refer(s, f, e)
	case literal:
		pattern, flags, name := e.text, e.flags, "/"+clip(e.text)+"/"
		if e.kind == tokString {
			pattern, name = regexp.QuoteMeta(e.text), strconv.Quote(clip(e.text))
		}
		c.text(s, e.token, name, pattern, strings.TrimLeft(flags, "u"))
	case charRange:
		name := fmt.Sprintf("%q..%q", string(e.lo), string(e.hi))
		c.text(s, e.token, name, fmt.Sprintf(`[\x{%x}-\x{%x}]`, e.lo, e.hi), "")
	}
}

// text continues with a regular expression: a terminal of its own in a rule, a part of a
// terminal otherwise.
func (c *compiler) text(s *section, at token, name, pattern, flags string) {
	if s.terminal >= 0 {
		s.regex(pattern, flags)
	} else {
		c.skip(s)
		s.call(c.regex(name, pattern, flags))
	}
	if c.err != nil && c.err.Line == 0 {
		c.err.Line, c.err.Column = at.line, at.col
	}
}

// refer continues with a rule or a terminal.
func (c *compiler) refer(s *section, f *file, r reference) {
	d := f.defs[r.text]
	switch {
	case d == nil:
		c.failAt(r.token, "%s is not defined", r.token)
	case s.terminal < 0 && r.kind == tokTerminal:
		c.skip(s)
		s.call(c.reference(d))
	case s.terminal < 0:
		s.call(c.reference(d))
	case r.kind == tokRule:
		c.failAt(r.token,
			"the terminal refers to the rule %s; terminals consist of terminals, strings and regular expressions",
			r.token)
	default:
		c.within(s, d)
	}
}
