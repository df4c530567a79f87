// Package scripted is a deterministic provider for demos and tests. It is not a
// language model: it runs the commands in the user's message.
//
// It takes the fenced blocks of the last user message in order, one turn each:
//
//	```sh timeout_ms=500 max_output_length=1000
//	echo one
//	---parallel---
//	echo two
//	```
//
// calls the function shell with two commands,
//
//	```python
//	print(1)
//	```
//
// calls code_interpreter with this code if the request offers it, and
//
//	```json NAME
//	{"any":"body"}
//	```
//
// calls the function NAME with that body unchanged. After the last block, it answers
// with a text that quotes each call's outcome and last line of output, or cites the first
// result of a search. It echoes a message without blocks. If the request does not offer a block's function, the answer
// states so.
//
// Its tokens are words: it counts white-space-separated words in the instructions,
// messages, arguments and outputs.
//
// It is stateless. Its place in the script follows from the outputs after the message,
// so a response survives a restart of the server.
package scripted

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/jsonscan"
	"github.com/berth-run/berth/model"
)

// Name is the demo model's name.
const Name = "scripted"

// A delta has piece characters, or more if a text would need more than maxPieces
// deltas.
const (
	piece     = 12
	maxPieces = 4000
)

// A Provider answers by script. The zero value is ready to use.
type Provider struct{}

var (
	_ model.Provider = Provider{}
	_ model.Counter  = Provider{}
)

// Stream implements model.Provider.
func (Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		s := read(req.Items)
		if !offers(req.Tools, codeInterpreter) {
			s.blocks = slices.DeleteFunc(s.blocks, func(b block) bool { return b.code }) // they are text
		}
		finish := model.Finish{Reason: model.FinishStop, Model: Name}
		finish.Usage.InputTokens = words(req.Instructions) + s.words
		var deltas []model.Delta
		if n := len(s.outputs); n < len(s.blocks) {
			deltas, finish.Usage.OutputTokens = recite(s.blocks[n], n, req.Tools)
		} else {
			text := until(s.summary(), req.Sampling.Stop)
			deltas, finish.Usage.OutputTokens = textDeltas(text), words(text)
		}
		finish.Usage.TotalTokens = finish.Usage.InputTokens + finish.Usage.OutputTokens
		for _, d := range append(deltas, finish) {
			if ctx.Err() != nil {
				yield(nil, context.Cause(ctx))
				return
			}
			if !yield(d, nil) {
				return
			}
		}
	}
}

// CountTokens implements model.Counter.
func (Provider) CountTokens(_ context.Context, req *model.Request) (int, error) {
	return words(req.Instructions) + read(req.Items).words, nil
}

// Models implements model.Lister.
func (Provider) Models(context.Context) ([]berth.Model, error) {
	return []berth.Model{{ID: Name, Object: "model", OwnedBy: "berth"}}, nil
}

// words returns the number of words, which are the demo model's tokens.
func words(s string) int { return len(strings.Fields(s)) }

// A script is a user message and the outputs after it.
type script struct {
	text    string
	blocks  []block
	outputs []output // of the completed blocks
	words   int      // in all items
}

// An output is the output of one block.
type output struct{ call, text string }

// read finds the last user message and the outputs that follow it.
func read(items []berth.Item) script {
	var s script
	names := map[string]string{}
	for _, it := range items {
		switch it.Type() {
		case berth.ItemMessage, "":
			var m berth.Message
			if it.Decode(&m) != nil {
				continue
			}
			content := text(m)
			s.words += words(content)
			if m.Role == "user" {
				s.text, s.outputs = content, nil
			}
		case berth.ItemFunctionCall:
			var c berth.FunctionCall
			if it.Decode(&c) == nil {
				names[c.CallID] = c.Name
				s.words += words(c.Arguments)
			}
		case berth.ItemFunctionCallOutput:
			if start, end, ok := jsonscan.Field(it.Raw(), "output"); ok {
				text := outputText(it.Raw()[start:end])
				s.outputs = append(s.outputs, output{names[it.CallID()], text})
				s.words += words(text)
			}
		}
	}
	s.blocks = parse(s.text)
	return s
}

func text(m berth.Message) string {
	var b strings.Builder
	for _, c := range m.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}

// outputText returns a function call output as text. It is a string or a list of
// contents.
func outputText(raw json.RawMessage) string {
	if s, ok := jsonscan.Unquote(raw); ok {
		return s
	}
	var b strings.Builder
	if jsonscan.Elements(raw, func(part []byte) bool {
		if start, end, ok := jsonscan.Field(part, "text"); ok {
			s, _ := jsonscan.Unquote(part[start:end])
			b.WriteString(s)
		}
		return true
	}) {
		return b.String()
	}
	return string(raw)
}

// recite calls a block's function, or answers that the request does not offer it.
func recite(b block, n int, tools []berth.FunctionTool) ([]model.Delta, int) {
	name, arguments := b.call()
	if !offers(tools, name) {
		s := fmt.Sprintf("Block %d needs the tool %q, which this request does not offer.", n+1, name)
		return textDeltas(s), words(s)
	}
	deltas := []model.Delta{model.Call{ID: berth.NewID(berth.PrefixCall), Name: name}}
	for _, p := range pieces(arguments) {
		deltas = append(deltas, model.Call{Arguments: p})
	}
	return deltas, words(arguments)
}

func offers(tools []berth.FunctionTool, name string) bool {
	return slices.ContainsFunc(tools, func(t berth.FunctionTool) bool { return t.Name == name })
}

// until returns the text before the first stop sequence.
func until(s string, stops []string) string {
	for _, stop := range stops {
		s, _, _ = strings.Cut(s, stop)
	}
	return s
}

func textDeltas(s string) []model.Delta {
	var deltas []model.Delta
	for _, p := range pieces(s) {
		deltas = append(deltas, model.Text{Text: p})
	}
	return deltas
}

func pieces(s string) []string {
	size := max(piece, utf8.RuneCountInString(s)/maxPieces+1)
	var out []string
	for len(s) > 0 {
		end, n := len(s), 0
		for i := range s {
			if n == size {
				end = i
				break
			}
			n++
		}
		out, s = append(out, s[:end]), s[end:]
	}
	return out
}

// summary is the answer after the last block. It echoes a message without blocks.
func (s script) summary() string {
	if len(s.blocks) == 0 {
		return s.text
	}
	var b strings.Builder
	for i, o := range s.outputs {
		query := ""
		if i < len(s.blocks) {
			_, query = s.blocks[i].call()
		}
		fmt.Fprintf(&b, "%d. %s\n", i+1, o.summary(query))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// summary quotes the exit code and last line of each command of a shell call, or a line of
// any other output. query has the arguments of the call.
func (o output) summary(query string) string {
	var shell struct{ Output []berth.ShellContent }
	if json.Unmarshal([]byte(o.text), &shell) != nil || len(shell.Output) == 0 {
		return o.call + ": " + quote(o.text, query)
	}
	var parts []string
	for _, c := range shell.Output {
		end := cmp.Or(c.Outcome.Type, "no outcome") // "timeout"
		if c.Outcome.ExitCode != nil {
			end = fmt.Sprintf("exit %d", *c.Outcome.ExitCode)
		}
		line := lastLine(c.Stdout)
		if line == "" {
			line = lastLine(c.Stderr)
		}
		if line != "" {
			end += ": " + line
		}
		parts = append(parts, end)
	}
	return strings.Join(parts, "; ")
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
