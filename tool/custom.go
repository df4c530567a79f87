package tool

import (
	_ "embed"
	"encoding/json"
	"strings"
	"text/template"

	"github.com/berth-run/berth"
)

//go:embed custom.md
var customText string

var customDescription = template.Must(template.New("custom").Parse(customText))

//go:embed custom.json
var customParameters json.RawMessage

// A Custom is a tool of the client's that takes text in a format of its own. The
// model sees a function with that text as its one argument.
type Custom struct {
	client
	tool      berth.CustomTool
	namespace string
}

var _ Tool = (*Custom)(nil)

// NewCustom returns a custom tool, in a namespace or none.
func NewCustom(tool berth.CustomTool, namespace string) *Custom {
	return &Custom{tool: tool, namespace: namespace}
}

func (c *Custom) Spec() Spec {
	about := struct {
		Description string
		Grammar     *berth.CustomFormat
	}{Description: c.tool.Description}
	if f := c.tool.Format; f != nil && f.Type == "grammar" {
		about.Grammar = f
	}
	var text strings.Builder
	if err := customDescription.Execute(&text, about); err != nil {
		panic(err) // a template of strings, written to memory
	}
	return Spec{Function: builtIn(FunctionName(c.namespace, c.tool.Name), strings.TrimSpace(text.String()), customParameters),
		Call: berth.ItemCustomToolCall, Client: true}
}

func (c *Custom) NewCall(callID string) Call {
	return &customCall{item: berth.CustomToolCall{ID: berth.NewID(berth.PrefixCustomCall), Type: berth.ItemCustomToolCall,
		Status: berth.StatusInProgress, CallID: callID, Name: c.tool.Name, Namespace: c.namespace}}
}

func lowerCustomCall(item berth.Item) (name, arguments string, err error) {
	var call berth.CustomToolCall
	if err := item.Decode(&call); err != nil {
		return "", "", err
	}
	raw, err := json.Marshal(map[string]string{"input": call.Input})
	return FunctionName(call.Namespace, call.Name), string(raw), err
}

// A customCall is one call. Its input is what was told of it.
type customCall struct {
	clientCall
	item   berth.CustomToolCall
	reader argumentReader
	input  strings.Builder
	begun  bool
	ended  bool
}

func (c *customCall) Item() berth.Item { return berth.NewItem(c.item) }

func (c *customCall) Write(arguments string) []berth.Event {
	var events []berth.Event
	for _, p := range c.reader.write(arguments) {
		if p.key != "input" || p.index >= 0 || c.ended {
			continue
		}
		c.begun, c.ended = true, p.ended
		if p.text != "" {
			events = append(events, c.say(p.text))
		}
	}
	return events
}

func (c *customCall) say(text string) berth.Event {
	c.input.WriteString(text)
	return berth.Event{Type: berth.EventCustomInputDelta, ItemID: c.item.ID, Delta: berth.StringDelta(text)}
}

func (c *customCall) Close(arguments string) (events []berth.Event, item berth.Item, refusal string) {
	if !c.begun {
		if text := freeInput(arguments); text != "" {
			events = append(events, c.say(text))
		}
	}
	c.item.Input, c.item.Status = c.input.String(), berth.StatusCompleted
	if c.begun && !c.ended {
		c.item.Status, refusal = berth.StatusIncomplete, "The arguments of this call end within \"input\". Nothing was done."
	}
	input := c.item.Input
	events = append(events, berth.Event{Type: berth.EventCustomInputDone, ItemID: c.item.ID, Input: &input})
	return events, c.Item(), refusal
}

// freeInput is the input of a call whose arguments have no "input": models that
// know free-form tools write the text itself, or the text under a name of theirs.
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
