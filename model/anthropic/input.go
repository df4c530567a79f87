package anthropic

import (
	"bytes"
	"encoding/json"
	"regexp"
)

// An inputReader translates the input of a call of bash or the editor to arguments of the function
// shell, {"commands":["…"]}. A command of bash is passed on while the model writes it.
type inputReader struct {
	tool   string // bashName, editorName or computerName
	one    bool   // the function of a computer takes one action
	input  []byte
	sent   int  // bytes of the input up to which the command was passed on; 0 before
	closed bool // the arguments are complete
}

// commandStart matches an input of bash up to its command.
var commandStart = regexp.MustCompile(`^\s*\{\s*"command"\s*:\s*"`)

// write adds input. It returns the next arguments.
func (r *inputReader) write(input string) (arguments string) {
	r.input = append(r.input, input...)
	if r.closed || r.tool != bashName {
		return ""
	}
	if r.sent == 0 {
		start := commandStart.FindIndex(r.input)
		if start == nil {
			return ""
		}
		r.sent = start[1]
		arguments = `{"commands":["`
	}
	// A backslash at the end waits for the character that it escapes.
	from := r.sent
	for r.sent < len(r.input) {
		switch c := r.input[r.sent]; {
		case c == '"':
			r.closed = true
			return arguments + string(r.input[from:r.sent]) + `"]}`
		case c != '\\':
			r.sent++
		case r.sent+1 < len(r.input):
			r.sent += 2
		default:
			return arguments + string(r.input[from:r.sent])
		}
	}
	return arguments + string(r.input[from:])
}

// end ends the input. It returns the rest of the arguments, which are invalid if the input is: the tool
// then tells the model.
func (r *inputReader) end() (arguments string) {
	switch {
	case r.closed:
		return ""
	case r.sent > 0: // within the command
		r.closed = true
		return string(r.input[r.sent:])
	}
	r.closed = true
	input := bytes.TrimSpace(r.input)
	if len(input) == 0 {
		input = []byte("{}")
	}
	if r.tool == computerName {
		return computerArguments(input, r.one)
	}
	if r.tool == editorName {
		var line bytes.Buffer
		if json.Compact(&line, input) != nil {
			return string(input)
		}
		return commands(marshal(editorHead + line.String() + editorEnd))
	}
	var call struct {
		Command json.RawMessage `json:"command"`
		Restart bool            `json:"restart"`
	}
	switch err := json.Unmarshal(input, &call); {
	case err != nil && !json.Valid(input):
		return string(input)
	case err == nil && call.Restart:
		return commands(marshal(restartCommand))
	case call.Command == nil || string(call.Command) == "null":
		return `{"commands":[]}`
	}
	return commands(call.Command)
}

// commands returns the arguments of a call with one command, which is JSON.
func commands(command json.RawMessage) string { return `{"commands":[` + string(command) + `]}` }
