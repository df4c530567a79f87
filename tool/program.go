package tool

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"

	"github.com/berth-run/berth"
)

// A Programmer is a hosted Tool whose calls are Programs.
type Programmer interface {
	Tool
	// Offer returns the function that the model sees. callable are the functions that
	// programs can call.
	Offer(callable []berth.FunctionTool) berth.FunctionTool
}

// A Program is a call of a hosted tool that makes calls itself, round by round. In place of
// Run, the engine calls Next until the program has ended. A program that is resumed starts
// from its beginning, and gets the same answers again.
type Program interface {
	Call
	// Next continues the program. answers are those of the calls of the last round, in their
	// order; nil starts the program. An error means that the program could not be run at all,
	// and fails the response.
	Next(ctx context.Context, answers []Answer) (Round, error)
	// Stop releases what the program holds.
	Stop()
}

// A Round is the calls that a program makes together, or its output if it has ended.
type Round struct {
	Calls          []ProgramCall
	Opened, Output berth.Item // the item of the output as it is opened, and when it is done
}

// A ProgramCall is a call of a function by a program.
type ProgramCall struct {
	Name      string
	Arguments string // JSON
}

// An Answer is what a program gets for a call: a value in JSON, or an error.
type Answer struct {
	Value json.RawMessage
	Error string
}

// Callers are the "allowed_callers" of a tool.
type Callers struct{ Model, Programs bool }

// CallersOf returns who may call a tool: the model, unless the tool says otherwise.
func CallersOf(t berth.Tool) Callers {
	var entry struct {
		AllowedCallers []string `json:"allowed_callers"`
	}
	if t.Decode(&entry) != nil || len(entry.AllowedCallers) == 0 {
		return Callers{Model: true}
	}
	var c Callers
	for _, name := range entry.AllowedCallers {
		c.Model = c.Model || name == berth.CallerDirect
		c.Programs = c.Programs || name == berth.CallerProgrammatic
	}
	return c
}

// CallerOf returns the program that made a call, or nil.
func CallerOf(it berth.Item) *berth.ToolCaller {
	if !bytes.Contains(it.Raw(), []byte(`"caller_id"`)) {
		return nil
	}
	var call struct {
		Caller *berth.ToolCaller `json:"caller"`
	}
	if it.Decode(&call) != nil || call.Caller == nil || call.Caller.Type != berth.CallerProgram {
		return nil
	}
	return call.Caller
}

// Answer returns what a program gets for a call, by the item with its output.
func (r *Registry) Answer(output berth.Item) (Answer, error) {
	c := r.CallsOf(output)
	if c.Answer != nil {
		return c.Answer(output)
	}
	shown, err := c.LowerOutput(output)
	return Answer{Value: valueOf(shown)}, err
}

// TextAnswer returns the answer of a call whose output is a text. An object or an array in
// JSON is a value; any other text is a string.
func TextAnswer(text string) Answer {
	if trimmed := strings.TrimSpace(text); strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		if json.Valid([]byte(trimmed)) {
			return Answer{Value: json.RawMessage(trimmed)}
		}
	}
	return Answer{Value: berth.StringDelta(text)}
}

// valueOf returns the output of a call that a model sees, a string or a list of parts, as a
// value. Parts are returned as they are unless all are text.
func valueOf(shown json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(shown, &text) == nil {
		return TextAnswer(text).Value
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(shown, &parts) != nil {
		return shown
	}
	lines := make([]string, 0, len(parts))
	for _, p := range parts {
		if p.Type != "input_text" && p.Type != "output_text" {
			return shown
		}
		lines = append(lines, p.Text)
	}
	return TextAnswer(strings.Join(lines, "\n")).Value
}

// Refused returns a call that cannot be made. Its Close refuses it with a message to the
// model, and the wire does not show it.
func Refused(reason string) Call { return refusedCall{reason: reason} }

type refusedCall struct {
	ClientCall
	reason string
}

func (refusedCall) Item() berth.Item           { return berth.Item{} }
func (refusedCall) Write(string) []berth.Event { return nil }

func (c refusedCall) Close(string) ([]berth.Event, berth.Item, string) {
	return nil, berth.Item{}, c.reason
}
