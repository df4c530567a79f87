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
}

// Limits of the cache. It holds at most about 20 MB.
const (
	maxCached       = 64
	maxCachedStates = 5000
)

// of returns the compiled grammar of a format, or nil if the format allows any text. Errors
// are for the client.
func (g *grammars) of(f *berth.CustomFormat) (*grammar.Grammar, error) {
	if f == nil || f.Type != "grammar" {
		return nil, nil
	}
	g.mu.Lock()
	compiled := g.byText[*f]
	g.mu.Unlock()
	if compiled != nil {
		return compiled, nil
	}
	compile := grammar.Lark
	if f.Syntax == "regex" {
		compile = grammar.Regex
	}
	compiled, err := compile(f.Definition)
	if err != nil {
		return nil, berth.Invalid("format.definition", "Invalid grammar: %v.", err)
	}
	if compiled.States() > maxCachedStates {
		return compiled, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.byText) >= maxCached || g.byText == nil {
		g.byText = map[berth.CustomFormat]*grammar.Grammar{}
	}
	g.byText[*f] = compiled
	return compiled, nil
}
