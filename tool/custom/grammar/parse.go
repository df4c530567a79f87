package grammar

import (
	"slices"
	"strconv"
	"strings"
)

// An expr is the right side of a definition.
type expr interface{ expr() }

type (
	choice   []expr // one of them
	sequence []expr
	repeated struct {
		body        expr
		least, most int // most is -1 for no limit
	}
	reference struct{ token }
	literal   struct{ token } // a string or a regular expression
	charRange struct {
		token
		lo, hi rune
	}
)

func (choice) expr()    {}
func (sequence) expr()  {}
func (repeated) expr()  {}
func (reference) expr() {}
func (literal) expr()   {}
func (charRange) expr() {}

// A definition is a rule or a terminal.
type definition struct {
	name token
	body expr
	from *file // where its references are resolved
}

// A file is a parsed grammar.
type file struct {
	defs   map[string]*definition
	order  []*definition
	ignore []expr

	imports [][2]token // of common: the terminal's name there and here
}

// add adds a definition. It panics with a *SyntaxError if there is one of that name.
func (f *file) add(d *definition) {
	if f.defs[d.name.text] != nil {
		panic(d.name.fail("%s is defined twice", d.name))
	}
	f.defs[d.name.text] = d
	f.order = append(f.order, d)
}

// A parser reads a grammar. Its first error ends it, as a panic within the package.
type parser struct {
	tokens []token
	at     int
	depth  int
	file   *file
}

// caught turns the panic of a parser into an error.
func caught(err *error) {
	switch e := recover().(type) {
	case nil:
	case *SyntaxError:
		*err = e
	default:
		panic(e)
	}
}

// parse reads a grammar without resolving its imports. Errors are of type *SyntaxError.
func parse(text string) (f *file, err error) {
	tokens, err := scan(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens, file: &file{defs: map[string]*definition{}}}
	defer caught(&err)
	for p.peek().kind != tokEnd {
		p.statement()
	}
	return p.file, nil
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != tokEnd {
		p.at++
	}
	return t
}

// is reports whether the next token is this symbol.
func (p *parser) is(symbol string) bool {
	t := p.peek()
	return t.kind == tokSymbol && t.text == symbol
}

// accept skips a symbol if it is next.
func (p *parser) accept(symbol string) bool {
	if !p.is(symbol) {
		return false
	}
	p.at++
	return true
}

// expect returns the next token, which must be of a kind.
func (p *parser) expect(kinds ...tokenKind) token {
	t := p.next()
	if !slices.Contains(kinds, t.kind) {
		var names []string
		for _, k := range kinds {
			names = append(names, string(k))
		}
		panic(t.fail("found %s, expected %s", t, strings.Join(names, " or ")))
	}
	return t
}

func (p *parser) symbol(text string) {
	if t := p.next(); t.kind != tokSymbol || t.text != text {
		panic(t.fail("found %s, expected %q", t, text))
	}
}

// statement reads a definition or a directive.
func (p *parser) statement() {
	switch t := p.peek(); t.kind {
	case tokNewline:
		p.next()
		return
	case tokKeyword:
		p.directive(p.next())
	default:
		p.definition()
	}
	p.expect(tokNewline)
}

// definition reads "name: body". The marks ? and ! and priorities only matter for trees
// and for lexers.
func (p *parser) definition() {
	for p.accept("?") || p.accept("!") {
	}
	name := p.expect(tokRule, tokTerminal)
	if p.is("{") {
		panic(p.peek().fail("templates are not supported; write the rule out for each use"))
	}
	if p.accept(".") {
		p.expect(tokNumber)
	}
	p.symbol(":")
	p.file.add(&definition{name: name, body: p.choice(), from: p.file})
}

// directive reads what follows a %keyword.
func (p *parser) directive(t token) {
	switch t.text {
	case "%ignore":
		p.file.ignore = append(p.file.ignore, p.choice())
	case "%import":
		p.imports()
	default:
		panic(t.fail("%s is not supported; %%import common and %%ignore are", t))
	}
}

// imports reads "common.NAME", "common.NAME -> OTHER" or "common (NAME, …)".
func (p *parser) imports() {
	module := p.next()
	if module.text != "common" {
		panic(module.fail("only \"%%import common\" is supported"))
	}
	if p.accept("(") {
		for {
			name := p.expect(tokTerminal)
			p.file.imports = append(p.file.imports, [2]token{name, name})
			if !p.accept(",") {
				break
			}
		}
		p.symbol(")")
		return
	}
	p.symbol(".")
	name := p.expect(tokTerminal)
	as := name
	if p.accept("->") {
		as = p.expect(tokTerminal)
	}
	p.file.imports = append(p.file.imports, [2]token{name, as})
}

// choice reads alternatives up to a token that cannot be part of one.
func (p *parser) choice() expr {
	if p.depth++; p.depth > maxDepth {
		panic(p.peek().fail("more than %d brackets are open", maxDepth))
	}
	defer func() { p.depth-- }()
	all := choice{p.sequence()}
	for p.accept("|") {
		all = append(all, p.sequence())
	}
	if len(all) == 1 {
		return all[0]
	}
	return all
}

// sequence reads items, and an alias, which only names a branch of the tree.
func (p *parser) sequence() expr {
	var all sequence
	for {
		e := p.item()
		if e == nil {
			break
		}
		all = append(all, e)
	}
	if p.accept("->") {
		p.expect(tokRule)
	}
	return all
}

// item reads an atom and how often it is repeated. It returns nil if none follows.
func (p *parser) item() expr {
	e := p.atom()
	if e == nil {
		return nil
	}
	switch {
	case p.accept("?"):
		return repeated{e, 0, 1}
	case p.accept("*"):
		return repeated{e, 0, -1}
	case p.accept("+"):
		return repeated{e, 1, -1}
	case p.accept("~"):
		t := p.peek()
		least := p.number()
		most := least
		if p.accept("..") {
			most = p.number()
		}
		if most < least {
			panic(t.fail("the range %d..%d is empty", least, most))
		}
		return repeated{e, least, most}
	}
	return e
}

// number reads a number of repetitions.
func (p *parser) number() int {
	t := p.expect(tokNumber)
	n, err := strconv.Atoi(t.text)
	if err != nil || n < 0 || n > maxStates {
		panic(t.fail("%s is not a number of repetitions from 0 to %d", t, maxStates))
	}
	return n
}

func (p *parser) atom() expr {
	switch t := p.peek(); t.kind {
	case tokRule, tokTerminal:
		p.next()
		if p.is("{") {
			panic(t.fail("templates are not supported; write the rule out for each use"))
		}
		return reference{t}
	case tokRegexp:
		p.next()
		return literal{t}
	case tokString:
		p.next()
		if !p.accept("..") {
			return literal{t}
		}
		end := p.expect(tokString)
		lo, hi := []rune(t.text), []rune(end.text)
		if len(lo) != 1 || len(hi) != 1 || lo[0] > hi[0] {
			panic(t.fail("a range goes from one character to a later one"))
		}
		return charRange{t, lo[0], hi[0]}
	}
	switch {
	case p.accept("("):
		e := p.choice()
		p.symbol(")")
		return e
	case p.accept("["):
		e := p.choice()
		p.symbol("]")
		return repeated{e, 0, 1}
	}
	return nil
}
