package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/dialogue"
)

// Claude is trained on tools whose calls the client runs: a shell, a text editor and a computer. Where a request
// has those of Berth, the model gets them in place of the function; their calls become calls of the
// function, and those of the history the calls that the model knows. See docs/decisions/0029.

// NativeTools are the types of tools for which a model can get Anthropic's own.
var NativeTools = []string{berth.ToolShell, berth.ToolCode, berth.ToolComputer}

// The types and names of Anthropic's tools. A name belongs to its type. code_execution runs on
// Anthropic's servers; here it only names a function with the same argument.
const (
	bashType   = "bash_20250124"
	bashName   = "bash"
	editorType = "text_editor_20250728"
	editorName = "str_replace_based_edit_tool"
	codeName   = "code_execution"
)

// The commands in a container that stand for calls of the editor, whose input is between head and
// end, and for a restart of bash. The guest of the container defines them.
const (
	editorHead     = editorName + " <<'EOF'\n"
	editorEnd      = "\nEOF"
	restartCommand = "restart_shell"
)

// vendorTools are the functions of a request for which the model gets Anthropic's tools, by name;
// empty names mean none.
type vendorTools struct {
	shell  string // bash is sent in its place
	editor bool   // and the editor too
	code   string

	computer     string
	computerType string // the version
	computerBeta string
}

// vendorTools selects the functions of a request. A tool whose name another function of the request
// has is not offered.
func (p *Provider) vendorTools(req *model.Request, g generation) (v vendorTools) {
	taken := func(name string) bool {
		return slices.ContainsFunc(req.Tools, func(t berth.FunctionTool) bool { return t.Name == name })
	}
	for _, t := range req.Tools {
		if t.Hosted == nil || !p.hasTool(t.Hosted.Type, g) {
			continue
		}
		switch t.Hosted.Type {
		case berth.ToolShell:
			if !taken(bashName) {
				v.shell = t.Name
				v.editor = !taken(editorName) && (p.opts.NativeTools != nil || g.since(4, 0))
			}
		case berth.ToolCode:
			if !taken(codeName) {
				v.code = t.Name
			}
		case berth.ToolComputer:
			if t.Hosted.Width > 0 && t.Hosted.Height > 0 && v.computer == "" && (t.Name == computerName ||
				!taken(computerName)) {
				v.computer = t.Name
				v.computerType, v.computerBeta = g.computer()
			}
		}
	}
	return v
}

// hasTool reports whether a model gets Anthropic's tool for a type of "tools": by the options, or
// because the model is documented to have it.
func (p *Provider) hasTool(toolType string, g generation) bool {
	if p.opts.NativeTools != nil {
		return slices.Contains(p.opts.NativeTools, toolType)
	}
	return g.since(3, 7)
}

// offer returns Anthropic's tools for a function, and what the model must know of its container. It
// returns none if the function is offered as it is.
func (v vendorTools) offer(t berth.FunctionTool) (tools []tool, about string) {
	switch {
	case t.Name == v.shell:
		tools = append(tools, tool{Type: bashType, Name: bashName})
		if v.editor {
			tools = append(tools, tool{Type: editorType, Name: editorName})
		}
		return tools, t.Hosted.About()
	case t.Name == v.code:
		return []tool{{Name: codeName, Description: t.Description, InputSchema: t.Parameters}}, ""
	case t.Name == v.computer:
		return []tool{{Type: v.computerType, Name: computerName, DisplayWidth: t.Hosted.Width,
			DisplayHeight: t.Hosted.Height}}, dialogue.Join(aboutComputer, t.Hosted.About())
	}
	return nil, ""
}

// offered returns the name under which the model is offered a function.
func (v vendorTools) offered(function string) string {
	switch {
	case function == "":
	case function == v.shell:
		return bashName
	case function == v.code:
		return codeName
	case function == v.computer:
		return computerName
	}
	return function
}

// function returns the function for a call of a tool, and whether its input must be
// translated.
func (v vendorTools) function(name string) (function string, translated bool) {
	switch {
	case name == bashName && v.shell != "", name == editorName && v.editor:
		return v.shell, true
	case name == codeName && v.code != "":
		return v.code, false
	case name == computerName && v.computer != "":
		return v.computer, true
	}
	return name, false
}

// An exchange is a call in the form of Anthropic's tool.
type exchange struct {
	name   string
	input  json.RawMessage
	output dialogue.Output
	failed bool
}

// exchanges returns the calls that a model is shown for a call of the history: one for each command of a
// shell's call, and for each action of a computer's.
func (v vendorTools) exchanges(c *dialogue.Call) []exchange {
	if v.isComputer(c.Name) {
		return computerExchanges(c)
	}
	if c.Name != v.shell || v.shell == "" {
		return []exchange{{name: v.offered(c.Name), input: c.Arguments, output: c.Output}}
	}
	var action struct {
		Commands []string `json:"commands"`
	}
	if json.Unmarshal(c.Arguments, &action) != nil || len(action.Commands) == 0 {
		return []exchange{{name: bashName, input: c.Arguments, output: c.Output}}
	}
	results := resultsOf(c.Output)
	all := make([]exchange, len(action.Commands))
	for i, command := range action.Commands {
		all[i] = v.exchange(command)
		switch {
		case results == nil:
			all[i].output = c.Output
		case i < len(results):
			all[i].output.Text, all[i].failed = results[i].text(all[i].name)
		default: // the call was refused, and the first result says why
			all[i].output = dialogue.Output{Text: dialogue.Interrupted, Missing: true}
		}
	}
	return all
}

// exchange returns the call of a command, without its output.
func (v vendorTools) exchange(command string) exchange {
	if input, ok := strings.CutPrefix(command, editorHead); ok && v.editor {
		if input, ok = strings.CutSuffix(input, editorEnd); ok && dialogue.IsObject(json.RawMessage(input)) {
			return exchange{name: editorName, input: json.RawMessage(input)}
		}
	}
	input := map[string]any{"command": command}
	if command == restartCommand {
		input = map[string]any{"restart": true}
	}
	return exchange{name: bashName, input: marshal(input)}
}

// marshal returns JSON in which <, > and & are not escaped.
func marshal(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // strings and booleans, written to memory
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// A commandResult is the output of one command of the function.
type commandResult struct {
	Stdout, Stderr string
	Outcome        struct {
		Type     string
		ExitCode int `json:"exit_code"`
	}
}

// resultsOf returns the results of a shell's call, or nil if its output is something else.
func resultsOf(o dialogue.Output) []commandResult {
	var out struct {
		Output []commandResult `json:"output"`
	}
	if o.Missing || o.Content != nil || json.Unmarshal([]byte(o.Text), &out) != nil || len(out.Output) == 0 {
		return nil
	}
	return out.Output
}

// text returns what a model reads as the result of a call of bash or of the editor, and whether the call failed.
func (r commandResult) text(name string) (text string, failed bool) {
	failed = r.Outcome.Type == "timeout" || r.Outcome.ExitCode != 0
	lines := []string{r.Stdout, r.Stderr}
	switch {
	case r.Outcome.Type == "timeout":
		lines = append(lines, "The command took too long and was ended.")
	case failed && name == bashName:
		lines = append(lines, fmt.Sprintf("exit code %d", r.Outcome.ExitCode))
	}
	for _, line := range lines {
		if line == "" {
			continue
		}
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += line
	}
	return text, failed
}
