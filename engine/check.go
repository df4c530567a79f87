package engine

import (
	"context"
	_ "embed"
	"encoding/json"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// checkWords tell the model of its checks, which are put in at %s.
//
//go:embed check.md
var checkWords string

// checks returns the checks of the response's request, or nil.
func (r *run) checks() *berth.Checks {
	if b := r.record.Request.Berth; b != nil {
		return b.Checks
	}
	return nil
}

// checkChecks refuses checks that have no container to run in.
func checkChecks(req *berth.ResponseRequest, tools toolset) error {
	if req.Berth == nil || req.Berth.Checks == nil {
		return nil
	}
	if t := tools.byName[tool.ShellName]; t == nil || t.Spec().Client {
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

// check opens the call that checks an answer, as a call of the shell, unless there
// are no checks. It becomes the response's next pending call.
func (s *speech) check(body berth.Response) []berth.Event {
	c := s.run.checks()
	if c == nil || waitsForClient(body) {
		return nil
	}
	arguments, _ := json.Marshal(berth.ShellAction{Commands: c.Commands, TimeoutMS: c.TimeoutMS}) // strings and numbers
	events, call := s.run.open(len(body.Output), string(arguments), berth.ShellCallBerth{CheckRound: rounds(body.Output) + 1})
	s.run.pending = append(s.run.pending, call)
	return events
}

// checkRound returns the round of a call that checks, or 0.
func checkRound(it berth.Item) int {
	var call berth.ShellCall
	if it.Type() != berth.ItemShellCall || it.Decode(&call) != nil || call.Berth == nil {
		return 0
	}
	return call.Berth.CheckRound
}

// rounds returns how many answers have been checked.
func rounds(output []berth.Item) int {
	n := 0
	for _, it := range output {
		n = max(n, checkRound(it))
	}
	return n
}

// checked ends the response if its last answer was just checked and has passed, or
// was the last that could be.
func (r *run) checked(ctx context.Context) (over bool, err error) {
	c, output := r.checks(), r.writer.Body().Output
	if c == nil || len(output) == 0 || !tool.IsOutput(output[len(output)-1]) {
		return false, nil
	}
	result := output[len(output)-1]
	i := slices.IndexFunc(output, func(it berth.Item) bool { return checkRound(it) > 0 && it.CallID() == result.CallID() })
	switch {
	case i < 0:
		return false, nil
	case !hasFailed(result):
		return true, r.conclude(ctx)
	case checkRound(output[i]) < limitOf(c):
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
