package grammar

import (
	"fmt"
	"regexp/syntax"
	"strings"
)

// Limits of a grammar. Those of one match are in match.go.
const (
	maxStates  = 100_000 // of a network
	maxRunes   = 1 << 20 // bounds of the ranges of all character classes
	maxClasses = 200     // Unicode classes, such as \pL, which are large
	maxDepth   = 100     // of parentheses in rules
)

// A network is the automata of a grammar. Rules and terminals share one numbering: a call
// enters either.
type network struct {
	states    []state
	entry     []int32 // by rule
	terminals []terminal
	greedy    map[int32]bool // the rules of ignored terminals
}

// A terminal is a named automaton of characters.
type terminal struct {
	name string // for the errors
}

// A state is one step.
type state struct {
	op       op
	out      int32 // the next state
	other    int32 // of a fork: the other next state; of a call: the rule
	terminal int32 // of a scan
	assert   syntax.EmptyOp
	runes    *syntax.Inst // of a scan
}

type op uint8

const (
	opFork   op = iota // continue at out and other
	opJump             // continue at out
	opScan             // read one character
	opCall             // run the rule other, then continue at out
	opAssert           // continue at out where assert holds, such as the start of a line
	opAccept           // the rule ends; out is the rule
	opFail
)

// A builder makes a network. Its first error stops it: states added later are not linked.
type builder struct {
	net     network
	byText  map[string]int32 // rules of terminals, by what they match
	runes   int
	classes int
	err     *SyntaxError
}

func newBuilder() *builder {
	return &builder{byText: map[string]int32{}, net: network{greedy: map[int32]bool{}}}
}

// fail records the first error.
func (b *builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = &SyntaxError{Reason: fmt.Sprintf(format, args...)}
	}
}

// add adds a state.
func (b *builder) add(s state) int32 {
	if len(b.net.states) >= maxStates {
		b.fail("the grammar is too large: it needs more than %d states", maxStates)
		return 0
	}
	b.net.states = append(b.net.states, s)
	return int32(len(b.net.states) - 1)
}

// A section is an automaton in construction: next is its open end, which the next step
// continues.
type section struct {
	b        *builder
	rule     int32
	next     int32
	terminal int32 // -1 in a rule
}

// reserve returns the number of a new rule, which open gives its states.
func (b *builder) reserve() int32 {
	b.net.entry = append(b.net.entry, 0)
	return int32(len(b.net.entry) - 1)
}

// define gives a reserved rule its states.
func (b *builder) define(rule, terminal int32, body func(*section)) {
	first := b.add(state{op: opJump})
	b.net.entry[rule] = first
	s := &section{b: b, rule: rule, next: first, terminal: terminal}
	body(s)
	s.step(state{op: opAccept, out: rule})
}

// rule adds a rule.
func (b *builder) rule(body func(*section)) int32 {
	id := b.reserve()
	b.define(id, -1, body)
	return id
}

// finish returns the grammar that starts with a rule.
func (b *builder) finish(start int32) (*Grammar, error) {
	if b.err != nil {
		return nil, b.err
	}
	return &Grammar{net: b.net, start: start}, nil
}

// step continues the section with a state, and returns its number.
func (s *section) step(st state) int32 {
	n := s.b.add(st)
	s.b.net.states[s.next].out = n
	s.next = n
	return n
}

// place continues the section with a state that only joins others.
func (s *section) place() int32 { return s.step(state{op: opJump}) }

// call continues with a rule.
func (s *section) call(rule int32) { s.step(state{op: opCall, other: rule}) }

// either continues with one of several bodies.
func (s *section) either(bodies []func()) {
	var ends []int32
	for i, body := range bodies {
		if s.b.err != nil {
			return
		}
		fork := s.place()
		if i < len(bodies)-1 {
			s.b.net.states[fork].op = opFork
		}
		body()
		ends = append(ends, s.next)
		s.next = fork
		if i < len(bodies)-1 { // the next alternative hangs on the other branch
			other := s.b.add(state{op: opJump})
			s.b.net.states[fork].other = other
			s.next = other
		}
	}
	join := s.b.add(state{op: opJump})
	for _, end := range ends {
		s.b.net.states[end].out = join
	}
	s.next = join
}

// repeat continues with least to most times a body; most is -1 for no limit.
func (s *section) repeat(least, most int, body func()) {
	for range least {
		if s.b.err != nil {
			return
		}
		body()
	}
	if most < 0 {
		loop := s.step(state{op: opFork})
		inside := s.b.add(state{op: opJump})
		s.b.net.states[loop].other = inside
		s.next = inside
		body()
		s.b.net.states[s.next].out = loop
		after := s.b.add(state{op: opJump})
		s.b.net.states[loop].out = after
		s.next = after
		return
	}
	for range most - least {
		if s.b.err != nil {
			return
		}
		body := body
		fork := s.step(state{op: opFork})
		inside := s.b.add(state{op: opJump})
		s.b.net.states[fork].other = inside
		s.next = inside
		body()
		join := s.b.add(state{op: opJump})
		s.b.net.states[s.next].out, s.b.net.states[fork].out = join, join
		s.next = join
	}
}

// terminal returns the rule of a new terminal.
func (b *builder) terminal(name string, body func(*section)) int32 {
	b.net.terminals = append(b.net.terminals, terminal{name: name})
	id := b.reserve()
	b.define(id, int32(len(b.net.terminals)-1), body)
	return id
}

// regex returns the rule of a terminal that is a regular expression with flags. Terminals
// with the same text are one.
func (b *builder) regex(name, pattern, flags string) int32 {
	key := flags + "/" + pattern
	if id, ok := b.byText[key]; ok {
		return id
	}
	id := b.terminal(name, func(s *section) { s.regex(pattern, flags) })
	b.byText[key] = id
	return id
}

// regex continues with a regular expression.
func (s *section) regex(pattern, flags string) {
	b := s.b
	mode := syntax.Perl // ^ and $ are the ends of the text
	if strings.Contains(flags, "i") {
		mode |= syntax.FoldCase
	}
	if strings.Contains(flags, "s") {
		mode |= syntax.DotNL
	}
	if strings.Contains(flags, "m") {
		mode &^= syntax.OneLine
	}
	b.classes += strings.Count(pattern, `\p`) + strings.Count(pattern, `\P`)
	if b.classes > maxClasses {
		b.fail("the grammar has more than %d Unicode classes such as \\pL", maxClasses)
		return
	}
	tree, err := syntax.Parse(pattern, mode)
	if err != nil {
		b.fail("%s", explain(pattern, err))
		return
	}
	if n := size(tree, &b.runes); n > maxStates || b.runes > maxRunes {
		b.fail("the regular expression /%s/ is too large", clip(pattern))
		return
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		b.fail("%s", explain(pattern, err))
		return
	}
	s.program(prog)
}

// program continues with the automaton of a regular expression.
func (s *section) program(prog *syntax.Prog) {
	b := s.b
	if len(b.net.states)+len(prog.Inst) >= maxStates {
		b.fail("the grammar is too large: it needs more than %d states", maxStates)
		return
	}
	first := int32(len(b.net.states))
	end := first + int32(len(prog.Inst))
	for i := range prog.Inst {
		inst := &prog.Inst[i]
		st := state{op: opJump, out: first + int32(inst.Out)}
		switch inst.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			st.op, st.other = opFork, first+int32(inst.Arg)
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			st.op, st.runes, st.terminal = opScan, inst, s.terminal
		case syntax.InstEmptyWidth:
			st.op, st.assert = opAssert, syntax.EmptyOp(inst.Arg)
		case syntax.InstMatch:
			st.out = end
		case syntax.InstFail:
			st.op = opFail
		}
		b.add(st)
	}
	s.b.net.states[s.next].out = first + int32(prog.Start)
	s.next = b.add(state{op: opJump})
}

// size returns about the number of states of a regular expression, and adds the bounds of
// its character classes to runes. It counts repetitions without making them.
func size(re *syntax.Regexp, runes *int) int {
	*runes += len(re.Rune)
	n := 1 + len(re.Rune)/2
	if re.Op == syntax.OpCharClass {
		n = 1
	}
	for _, sub := range re.Sub {
		n += size(sub, runes)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, 2*maxStates)
}

// explain returns an error of RE2 for a client.
func explain(pattern string, err error) string {
	reason := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	text := fmt.Sprintf("invalid regular expression /%s/: %s", clip(pattern), clip(reason))
	for _, part := range []string{"(?=", "(?!", "(?<=", "(?<!", "(?>"} {
		if strings.Contains(pattern, part) {
			return text + ". RE2 syntax is supported; it has no lookaround and no atomic groups"
		}
	}
	return text + ". RE2 syntax is supported; it has no backreferences"
}

// clip bounds a text of the client in an error.
func clip(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}
