// Package custom is the custom tools of the client, whose input is free text.
package custom

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/tool/custom/grammar"
)

//go:embed custom.md
var text string

var description = template.Must(template.New("custom").Parse(text))

//go:embed custom.json
var parameters json.RawMessage

// Kind returns the custom tools of the client.
func Kind() tool.Kind {
	offered := rule.Object(rule.Fields{
		"type": rule.AnyText, "name": rule.FunctionName, "description": rule.AnyText,
		"format": rule.ByType(map[string]rule.Rule{
			"text": rule.Object(rule.Fields{"type": rule.AnyText}),
			"grammar": rule.Object(rule.Fields{"type": rule.AnyText, "syntax": rule.OneOf("lark", "regex"),
				"definition": rule.Text(1, 1<<16)}, "syntax", "definition"),
		}),
		"allowed_callers": rule.Callers, "defer_loading": rule.Boolean, "async": rule.OnlyFalse,
	}, "name")
	var compiled grammars
	return tool.Kind{
		Type: berth.ToolCustom,
		Rules: func(*tool.Registry) tool.Rules {
			return tool.NamedRules(offered, "input", rule.Fields{"output": rule.Output})
		},
		Bind: func(c tool.Context, offered berth.Tool) (tool.Tool, error) {
			custom, err := tool.Decode[berth.CustomTool](offered, "custom tool")
			if err != nil {
				return nil, err
			}
			g, err := compiled.of(custom.Format)
			if err != nil {
				return nil, err
			}
			t := New(custom, c.Namespace)
			t.grammar = g
			return t, nil
		},
		Calls: &tool.Calls{Call: berth.ItemCustomToolCall, Output: berth.ItemCustomToolCallOutput,
			CallPrefix: berth.PrefixCustomCall, OutputPrefix: berth.PrefixCustomOutput,
			LowerCall: lowerCall, LowerOutput: tool.SameOutput, Draft: tool.FieldDraft("input")},
	}
}

// A Tool is a custom tool of the client. The model sees a function whose only argument
// is the text.
type Tool struct {
	tool.Client
	custom    berth.CustomTool
	namespace string
	grammar   *checker // of the text; nil allows any
}

var _ tool.Tool = (*Tool)(nil)

// New returns a custom tool that allows any text. namespace may be empty.
func New(custom berth.CustomTool, namespace string) *Tool {
	return &Tool{custom: custom, namespace: namespace}
}

// Spec implements tool.Tool.
func (c *Tool) Spec() tool.Spec {
	about := struct {
		Description string
		Grammar     *berth.CustomFormat
	}{Description: c.custom.Description}
	if f := c.custom.Format; f != nil && f.Type == "grammar" {
		about.Grammar = f
	}
	var text strings.Builder
	if err := description.Execute(&text, about); err != nil {
		panic(err) // a template of strings, written to memory
	}
	shown := tool.Function(tool.FunctionName(c.namespace, c.custom.Name), strings.TrimSpace(text.String()), parameters)
	shown.Custom = &berth.CustomTool{Type: berth.ToolCustom, Name: shown.Name, Description: c.custom.Description,
		Format: c.custom.Format}
	return tool.Spec{Function: shown, Call: berth.ItemCustomToolCall, Client: true}
}

// NewCall implements tool.Tool.
func (c *Tool) NewCall(callID string) tool.Call {
	return &customCall{grammar: c.grammar, item: berth.CustomToolCall{ID: berth.NewID(berth.PrefixCustomCall),
		Type:   berth.ItemCustomToolCall,
		Status: berth.StatusInProgress, CallID: callID, Name: c.custom.Name, Namespace: c.namespace}}
}

func lowerCall(item berth.Item) (name, arguments string, err error) {
	var call berth.CustomToolCall
	if err := item.Decode(&call); err != nil {
		return "", "", err
	}
	raw, err := json.Marshal(map[string]string{"input": call.Input})
	return tool.FunctionName(call.Namespace, call.Name), string(raw), err
}

// A customCall is one call. Its input is the streamed text. A call with a grammar is shown
// when all of its input is known to match: clients run calls without checking them.
type customCall struct {
	tool.ClientCall
	item    berth.CustomToolCall // in progress
	grammar *checker             // or nil
	valid   bool                 // the input matches the grammar
	reader  tool.ArgumentReader
	input   strings.Builder
	begun   bool
	ended   bool
}

func (c *customCall) Item() berth.Item {
	if c.grammar != nil && !c.valid {
		return berth.Item{}
	}
	return berth.NewItem(c.item)
}

func (c *customCall) Write(arguments string) []berth.Event {
	var events []berth.Event
	for _, p := range c.reader.Write(arguments) {
		if p.Key != "input" || p.Index >= 0 || c.ended {
			continue
		}
		c.begun, c.ended = true, p.Ended
		if p.Text == "" {
			continue
		}
		c.input.WriteString(p.Text)
		if c.grammar == nil {
			events = append(events, c.delta(p.Text))
		}
	}
	return events
}

func (c *customCall) delta(text string) berth.Event {
	return berth.Event{Type: berth.EventCustomInputDelta, ItemID: c.item.ID, Delta: berth.StringDelta(text)}
}

func (c *customCall) Close(arguments string) (events []berth.Event, item berth.Item, refusal string) {
	if !c.begun {
		if text := freeInput(arguments); text != "" {
			c.input.WriteString(text)
			if c.grammar == nil {
				events = append(events, c.delta(text))
			}
		}
	}
	closed := c.item
	closed.Input, closed.Status = c.input.String(), berth.StatusCompleted
	if c.begun && !c.ended {
		closed.Status, refusal = berth.StatusIncomplete,
			"The arguments of this call end within \"input\". Nothing was done."
	}
	if c.grammar != nil && refusal == "" {
		if err := c.grammar.Match(closed.Input); err != nil {
			return nil, berth.Item{}, mismatch(closed.Input, err)
		}
		c.valid = true
		events = append(events, c.delta(closed.Input))
	}
	events = append(events, berth.Event{Type: berth.EventCustomInputDone, ItemID: c.item.ID, Input: &closed.Input})
	return events, berth.NewItem(closed), refusal
}

// maxQuoted is the number of characters of a line that a refusal quotes.
const maxQuoted = 200

// mismatch returns a refusal of input that does not match the grammar. It quotes the line
// of the mistake.
func mismatch(input string, err error) string {
	text := fmt.Sprintf("The input does not match the tool's grammar: %v.", err)
	if m, ok := errors.AsType[*grammar.Mismatch](err); ok {
		line := []rune(strings.Split(input, "\n")[m.Line-1])
		at := min(m.Column-1, len(line))
		from := max(0, at-maxQuoted)
		text += fmt.Sprintf(" The line up to there is: %s", string(line[from:at]))
	}
	return text + "\nNothing was done. Call the tool again with input that matches the whole grammar."
}

// freeInput returns the input of a call whose arguments have no "input". Models that know
// free-form tools write the text alone, or the text under another name.
func freeInput(arguments string) string {
	var text string
	if json.Unmarshal([]byte(arguments), &text) == nil {
		return text
	}
	var named map[string]string
	if json.Unmarshal([]byte(arguments), &named) == nil && len(named) <= 1 {
		for _, text = range named {
		}
		return text
	}
	return arguments
}
