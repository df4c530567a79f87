package engine

import (
	"context"
	_ "embed"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// checkWords tell the model of its checks, which are put in at %s.
//
//go:embed check.md
var checkWords string

// runner returns the hosted tool that runs commands, or nil.
func (s *toolset) runner() *boundTool {
	for _, f := range s.order {
		if t := s.hosted(f); t != nil && t.kind.Calls.Script != nil {
			return t
		}
	}
	return nil
}

// checks returns the checks of the response's request, or nil.
func (r *run) checks() *berth.Checks {
	if b := r.record.Request.Berth; b != nil {
		return b.Checks
	}
	return nil
}

// checkChecks refuses checks that have no container to run in.
func (s *toolset) checkChecks(req *berth.ResponseRequest) error {
	if req.Berth == nil || req.Berth.Checks == nil {
		return nil
	}
	if s.runner() == nil {
		return berth.Invalid("berth.checks", "Checks run in a container: they need a tool of type 'shell' that has one.")
	}
	return nil
}

// instructed adds what the model must know of the checks to its instructions.
func (r *run) instructed(instructions string) string {
	c := r.checks()
	if c == nil {
		return instructions
	}
	told := strings.Replace(checkWords, "%s", strings.Join(c.Commands, "\n"), 1)
	return strings.TrimLeft(instructions+"\n\n"+told, "\n")
}

// check opens the call that checks an answer, unless there are no checks. It becomes the response's next pending call.
func (s *speech) check(body berth.Response) []berth.Event {
	c := s.run.checks()
	if c == nil || s.run.waitsForClient(body) {
		return nil
	}
	t := s.run.tools.runner()
	events, call := s.run.open(len(body.Output), t.Spec().Function.Name, t.kind.Calls.Script(c.Commands, c.TimeoutMS),
		berth.CallBerth{CheckRound: rounds(s.run.engine.Tools, body.Output) + 1})
	s.run.pending = append(s.run.pending, call)
	return events
}

// checkRound returns the round of a call that checks, or 0.
func checkRound(tools *tool.Registry, it berth.Item) int {
	return tools.MarkOf(it).CheckRound
}

// rounds returns how many answers have been checked.
func rounds(tools *tool.Registry, output []berth.Item) int {
	n := 0
	for _, it := range output {
		n = max(n, checkRound(tools, it))
	}
	return n
}

// checked ends the response if its last answer was just checked and has passed, or
// was the last that could be.
func (r *run) checked(ctx context.Context) (over bool, err error) {
	c, output, tools := r.checks(), r.writer.Body().Output, r.engine.Tools
	if c == nil || len(output) == 0 || !tools.IsOutput(output[len(output)-1]) {
		return false, nil
	}
	result := output[len(output)-1]
	i := slices.IndexFunc(output, func(it berth.Item) bool { return checkRound(tools, it) > 0 && it.CallID() == result.CallID() })
	switch {
	case i < 0:
		return false, nil
	case tools.Outcome(result) == tool.OK:
		return true, r.conclude(ctx)
	case checkRound(tools, output[i]) < limitOf(c):
		return false, nil
	}
	return true, r.stop(ctx, berth.ReasonChecksFailed)
}

func limitOf(c *berth.Checks) int {
	if c.MaxRounds > 0 {
		return c.MaxRounds
	}
	return berth.DefaultCheckRounds
}
