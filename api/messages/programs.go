package messages

import (
	"slices"
	"strings"

	"github.com/berth-run/berth"
)

// Programmatic tool calling: a function whose allowed_callers has a version of code_execution can be called by the
// programs of the server's programmatic_tool_calling. A program is a call of code_execution whose id holds what the
// server needs to continue it: srvtoolu_prog_CALL_f_FINGERPRINT.

const (
	prefixProgram = prefixServer + "prog_"
	fingerprintAt = "_f_"
	maxCall       = 64 // characters of a call_id
)

// programID returns the id of the call that a program becomes.
func programID(p *berth.Program) string {
	return prefixProgram + p.CallID + fingerprintAt + p.Fingerprint
}

// readProgramID returns the call_id and the fingerprint of a program.
func readProgramID(id string) (call, fingerprint string, ok bool) {
	rest, ok := strings.CutPrefix(id, prefixProgram)
	if !ok {
		return "", "", false
	}
	call, fingerprint, ok = strings.Cut(rest, fingerprintAt)
	return call, fingerprint, ok && call != "" && len(call) <= maxCall
}

// programCaller returns the version of code_execution that may call functions, or "".
func (m *messageRequest) programCaller() string {
	for i := range m.Tools {
		for _, c := range m.Tools[i].AllowedCallers {
			if strings.HasPrefix(c, familyCode) && m.Tools[i].family() == familyCustom {
				return c
			}
		}
	}
	return ""
}

// callers returns who may call a function: the model, which is the default, or programs.
func (p *toolParam) callers() []string {
	var callers []string
	for _, c := range p.AllowedCallers {
		if strings.HasPrefix(c, familyCode) {
			c = berth.CallerProgrammatic
		}
		if !slices.Contains(callers, c) {
			callers = append(callers, c)
		}
	}
	return callers
}

// readProgram reads a program that has started.
func (s *servedItem) readProgram(p *berth.Program) {
	id := programID(p)
	s.programs[p.CallID] = id
	s.call(callOutput{Type: "server_tool_use", ID: id, Name: familyCode, Input: object("code", p.Code),
		Caller: direct})
}

// readProgramOutput reads the result of a program. It may have started in an earlier answer.
func (s *servedItem) readProgramOutput(out *berth.ProgramOutput) {
	id := s.programs[out.CallID]
	if id == "" {
		return
	}
	result := bashResult{Type: "code_execution_result", Stdout: out.Result, Content: []any{}}
	if out.Status != berth.StatusCompleted {
		result.ReturnCode, result.Stdout, result.Stderr = 1, "", out.Result
	}
	s.result(resultOutput{Type: "code_execution_tool_result", ToolUseID: id, Content: result})
}

// program adds a program of an earlier answer.
func (h *history) program(b *contentBlock, call, fingerprint string) {
	var input struct {
		Code string `json:"code"`
	}
	decodeInput(b.Input, &input)
	h.programs[b.ID] = call
	h.add(berth.Program{ID: berth.NewID(berth.PrefixProgram), Type: berth.ItemProgram, CallID: call, Code: input.Code,
		Fingerprint: fingerprint})
}

// programOutput adds the result of a program of an earlier answer.
func (h *history) programOutput(b *contentBlock, call string) {
	var result servedResult
	decodeInput(b.Content, &result)
	out := berth.ProgramOutput{ID: berth.NewID(berth.PrefixProgramOutput), Type: berth.ItemProgramOutput,
		CallID: call, Status: berth.StatusCompleted, Result: result.Stdout}
	if result.ReturnCode != 0 {
		out.Status, out.Result = berth.StatusIncomplete, result.Stderr
	}
	h.add(out)
}

// A calledFunction is the call of a function with its caller, if that is a program.
type calledFunction struct {
	berth.FunctionCall
	Caller *berth.ToolCaller `json:"caller,omitempty"`
}

// callerOf returns the program that has made a call of an earlier answer, or nil.
func (h *history) callerOf(b *contentBlock) *berth.ToolCaller {
	if call := h.programs[b.Caller.ToolID]; call != "" {
		return &berth.ToolCaller{Type: berth.CallerProgram, CallerID: call}
	}
	return nil
}
