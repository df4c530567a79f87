package scripted

import (
	"encoding/json"
	"strconv"
	"strings"
)

// parallel is the line that separates the commands of one shell block.
const parallel = "---parallel---"

// A block is one fenced block of a message that the demo model knows: sh or json.
type block struct {
	name  string // of the function
	shell bool   // the body is commands, not arguments
	args  []string
	body  string
}

// parse finds the blocks of a message. As in Markdown, a fence is a line of three
// backticks or more, and ends at a line of as many; one that is not closed ends
// with the message. Fences of other languages are text.
func parse(text string) []block {
	var blocks []block
	var open *block
	var body strings.Builder
	fence := 0 // backticks of the open fence, known or not
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
			fence, open = ticks, begin(strings.Fields(info))
		case fence > 0 && ticks >= fence && info == "":
			end()
		case fence > 0:
			body.WriteString(line)
		}
	}
	end()
	return blocks
}

// begin returns the block that a fence opens, or nil for a language unknown here.
func begin(info []string) *block {
	switch {
	case len(info) >= 1 && info[0] == "sh":
		return &block{name: "shell", shell: true, args: info[1:]}
	case len(info) == 2 && info[0] == "json":
		return &block{name: info[1]}
	}
	return nil
}

// call returns the function that a block calls, and its arguments.
func (b block) call() (name, arguments string) {
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
	var raw strings.Builder
	encoder := json.NewEncoder(&raw)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(args) // strings and numbers always marshal
	return b.name, strings.TrimSuffix(raw.String(), "\n")
}
