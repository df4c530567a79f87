// Package grammar checks texts against the grammars of custom tools: Lark grammars and
// regular expressions.
//
// Both are compiled to one network of states. A rule of a Lark grammar is an automaton
// whose steps are terminals and calls of other rules; a terminal is an automaton of
// characters. Match simulates the network with Earley's algorithm, so left recursion,
// ambiguity and empty rules need no special form. A text belongs to a grammar if any split
// into terminals does; the priorities with which a lexer chooses one split mean nothing
// here.
//
// Grammars come from clients and texts from models, so compiling and matching have limits
// of steps and memory.
package grammar

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Grammar is a compiled grammar. It is immutable and safe for concurrent use.
type Grammar struct {
	net   network
	start int32 // a rule
}

// States returns the number of states of the grammar, of about 40 bytes each.
func (g *Grammar) States() int { return len(g.net.states) }

// ErrLimit is the error of Match for a text that needs more work than the limits allow.
var ErrLimit = errors.New("the input is too long or too ambiguous to be checked against the grammar")

// A SyntaxError is an error in a grammar, for the client that wrote it.
type SyntaxError struct {
	Line, Column int // from 1; 0 if the error has no place
	Reason       string
}

// Error returns the place and the reason.
func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.Reason
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// A Mismatch is the place where a text leaves its grammar.
type Mismatch struct {
	Line, Column int    // from 1, of the first character that cannot follow
	Found        string // that character; empty at the end of the text
	Expected     []string
}

// maxExpected is the number of alternatives that a Mismatch's text names.
const maxExpected = 12

// Error returns the place with what was found and what could stand there.
func (m *Mismatch) Error() string {
	found := "the input ends"
	if m.Found != "" {
		found = "found " + strconv.Quote(m.Found)
	}
	text := fmt.Sprintf("line %d, column %d: %s", m.Line, m.Column, found)
	shown := m.Expected[:min(len(m.Expected), maxExpected)]
	text += ", expected " + strings.Join(shown, " or ")
	if more := len(m.Expected) - len(shown); more > 0 {
		text += fmt.Sprintf(" or one of %d others", more)
	}
	return text
}

// Regex compiles a regular expression in RE2's syntax, which the whole text must match.
// Errors are of type *SyntaxError.
func Regex(pattern string) (*Grammar, error) {
	b := newBuilder()
	id := b.regex("a match of the pattern", pattern, "")
	start := b.rule(func(s *section) { s.call(id) })
	return b.finish(start)
}

// Lark compiles a Lark grammar, whose first rule is "start". Errors are of type
// *SyntaxError.
func Lark(definition string) (*Grammar, error) {
	file, err := parse(definition)
	if err != nil {
		return nil, err
	}
	return file.compile()
}

// Match returns nil if the whole text belongs to the grammar, a *Mismatch if it does not,
// and ErrLimit if the limits are reached first.
func (g *Grammar) Match(text string) error {
	m := matcher{net: &g.net, limit: maxSteps, waiting: map[uint64]int32{}}
	at, err := m.run(g.start, text)
	if err != nil || at < 0 {
		return err
	}
	mismatch := &Mismatch{Line: 1 + strings.Count(text[:at], "\n"), Expected: m.expected()}
	mismatch.Column = 1 + len([]rune(text[strings.LastIndexByte(text[:at], '\n')+1:at]))
	for _, r := range text[at:] {
		mismatch.Found = string(r)
		break
	}
	return mismatch
}

// expected returns the sorted names of the terminals that the matcher could continue.
func (m *matcher) expected() []string {
	var names []string
	for _, it := range m.scans {
		t := m.net.states[it.state].terminal
		name := m.net.terminals[t].name
		if it.origin < m.at {
			name = "the rest of " + name
		}
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if m.accepts {
		names = append(names, "the end of the input")
	}
	return names
}
