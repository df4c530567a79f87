package scripted

import (
	"encoding/json"
	"strconv"
	"strings"
)

// parallel is the line that separates the commands of one shell block.
const parallel = "---parallel---"

// codeInterpreter is the function that python blocks call.
const codeInterpreter = "code_interpreter"

// A block is a fenced block of a supported language: sh, python or json.
type block struct {
	name  string // of the function
	shell bool   // the body has commands, not arguments
	code  bool   // the body is code, not arguments
	args  []string
	body  string
}

// parse finds the blocks of a message. As in Markdown, a fence is a line of three or
// more backticks and ends at a line of as many, or at the end of the message. Fences
// of other languages are text.
func parse(text string) []block {
	var blocks []block
	var open *block
	var body strings.Builder
	fence := 0 // backticks of the open fence of any language
	end := func() {
		if open != nil {
			open.body = body.String()
			blocks = append(blocks, *open)
		}
		fence, open = 0, nil
		body.Reset()
	}
	for line := range strings.Lines(text) {
		info := strings.TrimLeft(line, "`")
		ticks := len(line) - len(info)
		info = strings.TrimSpace(info)
		switch {
		case fence == 0 && ticks >= 3:
			fence, open = ticks, newBlock(strings.Fields(info))
		case fence > 0 && ticks >= fence && info == "":
			end()
		case fence > 0:
			body.WriteString(line)
		}
	}
	end()
	return blocks
}

// newBlock returns the block that a fence opens, or nil for another language.
func newBlock(info []string) *block {
	switch {
	case len(info) >= 1 && info[0] == "sh":
		return &block{name: "shell", shell: true, args: info[1:]}
	case len(info) == 1 && info[0] == "python":
		return &block{name: codeInterpreter, code: true}
	case len(info) == 2 && info[0] == "json":
		return &block{name: info[1]}
	}
	return nil
}

// call returns the block's function and arguments.
func (b block) call() (name, arguments string) {
	if b.code {
		return b.name, marshal(map[string]any{"code": b.body})
	}
	if !b.shell {
		return b.name, strings.TrimSuffix(b.body, "\n")
	}
	var commands []string
	var command strings.Builder
	for line := range strings.Lines(strings.ReplaceAll(b.body, "\r\n", "\n")) {
		if strings.TrimSpace(line) == parallel {
			commands = append(commands, strings.TrimSuffix(command.String(), "\n"))
			command.Reset()
			continue
		}
		command.WriteString(line)
	}
	args := map[string]any{"commands": append(commands, strings.TrimSuffix(command.String(), "\n"))}
	for _, a := range b.args {
		key, value, _ := strings.Cut(a, "=")
		if n, err := strconv.Atoi(value); err == nil && key != "commands" {
			args[key] = n
		}
	}
	return b.name, marshal(args)
}

// marshal returns arguments as JSON, without escapes for HTML.
func marshal(args map[string]any) string {
	var raw strings.Builder
	encoder := json.NewEncoder(&raw)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(args) // strings and numbers always marshal
	return strings.TrimSuffix(raw.String(), "\n")
}
