package engine

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// checkPrompt describes the checks to the model. %s is replaced by their commands.
//
//go:embed check.md
var checkPrompt string

// runner returns the hosted tool that runs commands, or nil.
func (s *toolset) runner() *boundTool {
	for _, f := range s.order {
		if t := s.hosted(f); t != nil && t.kind.Calls.Script != nil {
			return t
		}
	}
	return nil
}

// checkChecks refuses checks that have no container to run in.
func (s *toolset) checkChecks(kinds *tool.Registry, req *berth.ResponseRequest) error {
	if req.Berth == nil || req.Berth.Checks == nil || s.runner() != nil {
		return nil
	}
	return berth.Invalid("berth.checks",
		"Checks run in a container. Add a tool of type '%s' with a container to 'tools'.", strings.Join(kinds.Runners(),
			"' or '"))
}

// instructed returns the model's instructions with a description of the checks.
func (g *guard) instructed(instructions string) string {
	c := g.rails.Checks
	if c == nil {
		return instructions
	}
	text := strings.Replace(checkPrompt, "%s", strings.Join(c.Commands, "\n"), 1)
	return strings.TrimLeft(instructions+"\n\n"+text, "\n")
}

// check returns the call that checks the answer in output, and the events that open it. It
// returns a nil call if the request has no checks.
func (g *guard) check(output []berth.Item) ([]berth.Event, tool.Call) {
	c := g.rails.Checks
	if c == nil {
		return nil, nil
	}
	t := g.tools.runner()
	return g.openCall(len(output), t.Spec().Function.Name, t.kind.Calls.Script(c.Commands, c.TimeoutMS),
		berth.CallBerth{CheckRound: rounds(g.kinds, output) + 1})
}

// checkRound returns the round of a call that checks an answer, or 0 for other items.
func checkRound(tools *tool.Registry, it berth.Item) int {
	return tools.MarkOf(it).CheckRound
}

// rounds returns the number of checks so far.
func rounds(tools *tool.Registry, output []berth.Item) int {
	n := 0
	for _, it := range output {
		n = max(n, checkRound(tools, it))
	}
	return n
}

// A verdict is the result of the checks of an answer.
type verdict int

const (
	notChecked   verdict = iota // or the model may try again
	checksPassed                // the response is complete
	checksFailed                // in the last round
)

// verdict returns the result of the check that ends the output, if one does.
func (g *guard) verdict(output []berth.Item) verdict {
	c := g.rails.Checks
	if c == nil || len(output) == 0 || !g.kinds.IsOutput(output[len(output)-1]) {
		return notChecked
	}
	result := output[len(output)-1]
	i := slices.IndexFunc(output, func(it berth.Item) bool {
		return checkRound(g.kinds, it) > 0 && it.CallID() == result.CallID()
	})
	switch {
	case i < 0:
		return notChecked
	case g.kinds.Outcome(result) == tool.OK:
		return checksPassed
	case checkRound(g.kinds, output[i]) < maxRounds(c):
		return notChecked
	}
	return checksFailed
}

func maxRounds(c *berth.Checks) int {
	if c.MaxRounds > 0 {
		return c.MaxRounds
	}
	return berth.DefaultCheckRounds
}
