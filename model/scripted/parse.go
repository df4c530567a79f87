package scripted

import (
	"encoding/json"
	"strconv"
	"strings"
)

// parallel is the line that separates the commands of one shell block.
const parallel = "---parallel---"

// A block is one fenced block of a message that the recital knows: sh or json.
type block struct {
	name  string // of the function
	shell bool   // the body is commands, not arguments
	args  []string
	body  string
}

// parse finds the blocks of a message. A block that is not closed ends with it;
// fences of other languages are text.
func parse(text string) []block {
	var blocks []block
	var open *block
	var body []string
	inside := false // of a fence, known or not
	for line := range strings.Lines(text) {
		fence, isFence := strings.CutPrefix(strings.TrimRight(line, " \t\r\n"), "```")
		switch {
		case isFence && !inside:
			inside, body = true, nil
			open = begin(strings.Fields(fence))
		case isFence && fence == "":
			if open != nil {
				open.body = strings.Join(body, "")
				blocks = append(blocks, *open)
			}
			inside, open = false, nil
		case inside:
			body = append(body, line)
		}
	}
	if open != nil {
		open.body = strings.Join(body, "")
		blocks = append(blocks, *open)
	}
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
	args := map[string]any{}
	var commands []string
	var command strings.Builder
	for line := range strings.Lines(b.body) {
		if strings.TrimSpace(line) == parallel {
			commands = append(commands, strings.TrimSuffix(command.String(), "\n"))
			command.Reset()
			continue
		}
		command.WriteString(line)
	}
	args["commands"] = append(commands, strings.TrimSuffix(command.String(), "\n"))
	for _, a := range b.args {
		key, value, _ := strings.Cut(a, "=")
		if n, err := strconv.Atoi(value); err == nil {
			args[key] = n
		}
	}
	raw, _ := json.Marshal(args) // strings and numbers always marshal
	return b.name, string(raw)
}
