package anthropic

import (
	"cmp"
	"strconv"
	"strings"
)

// A generation is parsed from the name of a Claude model: claude-opus-4-6,
// claude-3-7-sonnet-20250219, us.anthropic.claude-sonnet-4-5-20250929-v1:0. It selects
// how the model is made to think and what it accepts.
type generation struct {
	claude       bool
	line         string // opus, sonnet, haiku …
	major, minor int    // 0 if the name has none
}

func generationOf(name string) generation {
	_, rest, ok := strings.Cut(strings.ToLower(name), "claude")
	if !ok {
		return generation{}
	}
	g := generation{claude: true}
	numbers := 0
	for _, word := range strings.FieldsFunc(rest, func(r rune) bool { return strings.ContainsRune("-.@:/_", r) }) {
		n, err := strconv.Atoi(word)
		switch {
		case err != nil && g.line == "" && word != "latest" && word != "v1":
			g.line = word
		case err == nil && len(word) <= 2 && numbers == 0:
			g.major, numbers = n, 1
		case err == nil && len(word) <= 2 && numbers == 1:
			g.minor, numbers = n, 2
		case numbers > 0:
			numbers = 2 // a date or another word ends the version
		}
	}
	return g
}

// since reports whether a model has a version or a later one. A Claude without a
// version in its name counts as the latest.
func (g generation) since(major, minor int) bool {
	return g.claude && (g.major == 0 || cmp.Or(cmp.Compare(g.major, major), cmp.Compare(g.minor, minor)) >= 0)
}

// adapts reports whether the model decides how much to think, guided by an effort,
// instead of by a budget of tokens.
func (g generation) adapts() bool { return g.since(4, 6) }

// thinksByDefault reports whether the model thinks unless the request disables it.
func (g generation) thinksByDefault() bool { return g.since(5, 0) }

// binds reports whether the model refuses thoughts after a change of what precedes
// them, unless the request tells it to drop them.
func (g generation) binds() bool { return g.since(5, 1) }

// effort returns the wire's value for an effort of Responses, or "" if the model has
// none.
func (g generation) effort(e string) string {
	switch {
	case !g.since(4, 5) || g.major == 4 && g.minor == 5 && g.line != "opus":
		return ""
	case e == "minimal":
		return "low"
	case e == "xhigh" && !g.since(4, 7):
		return "high"
	}
	return e
}

// maxTokens returns the most output tokens of one turn.
func (g generation) maxTokens() int {
	switch {
	case !g.claude:
		return 32_000
	case g.since(4, 7), g.since(4, 6) && g.line == "opus":
		return 128_000
	case g.since(4, 5), g.major == 4 && g.line == "sonnet", g.major == 3 && g.minor == 7:
		return 64_000
	case g.major == 4:
		return 32_000
	case g.major == 3 && g.minor == 5:
		return 8192
	}
	return 4096
}

// budgets maps an effort to the tokens that a model may think with.
var budgets = map[string]int{"minimal": minBudget, "low": 4096, "medium": 12_000, "high": 24_000, "xhigh": 32_000,
	"max": 48_000}

// minBudget is the least budget that Anthropic accepts.
const minBudget = 1024

// family returns the model's name without its date. The models of a family can read
// each other's thoughts.
func family(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if at := strings.LastIndexByte(name, '-'); at >= 0 && len(name)-at == len("-20250929") {
		if _, err := strconv.Atoi(name[at+1:]); err == nil {
			return name[:at]
		}
	}
	return name
}
