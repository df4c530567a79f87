package custom

import (
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool/custom/grammar"
)

// grammars caches compiled grammars, because most clients send the same one with each
// request. It is safe for concurrent use. Its zero value is empty.
type grammars struct {
	mu     sync.Mutex
	byText map[berth.CustomFormat]*grammar.Grammar

	// compiling is held while a grammar is compiled: one at a time, since each may need 12 MB.
	compiling sync.Mutex
}

// Limits of the cache. It holds at most about 20 MB.
const (
	maxCached       = 64
	maxCachedStates = 5000
)

// A checker checks texts against the grammar of a format.
type checker struct {
	format   berth.CustomFormat
	compiled *grammar.Grammar // nil if it is too large to be kept while no text is checked
	grammars *grammars
}

// of returns a checker for a format, or nil if the format allows any text. Errors are for the
// client.
func (g *grammars) of(f *berth.CustomFormat) (*checker, error) {
	if f == nil || f.Type != "grammar" {
		return nil, nil
	}
	compiled, err := g.compile(*f)
	if err != nil {
		return nil, berth.Invalid("format.definition", "Invalid grammar: %v.", err)
	}
	if compiled.States() > maxCachedStates {
		compiled = nil
	}
	return &checker{*f, compiled, g}, nil
}

// Match is like that of grammar.Grammar.
func (c *checker) Match(text string) error {
	compiled := c.compiled
	if compiled == nil {
		var err error
		if compiled, err = c.grammars.compile(c.format); err != nil {
			return err
		}
	}
	return compiled.Match(text)
}

// compile returns the compiled grammar of a format, from the cache if it is there.
func (g *grammars) compile(f berth.CustomFormat) (*grammar.Grammar, error) {
	g.mu.Lock()
	compiled := g.byText[f]
	g.mu.Unlock()
	if compiled != nil {
		return compiled, nil
	}
	compile := grammar.Lark
	if f.Syntax == "regex" {
		compile = grammar.Regex
	}
	g.compiling.Lock()
	compiled, err := compile(f.Definition)
	g.compiling.Unlock()
	if err != nil || compiled.States() > maxCachedStates {
		return compiled, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.byText) >= maxCached || g.byText == nil {
		g.byText = map[berth.CustomFormat]*grammar.Grammar{}
	}
	g.byText[f] = compiled
	return compiled, nil
}
