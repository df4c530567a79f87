// Package search is the tool_search tool, with which a model searches for further tools of
// the client, and namespaces, which group tools under a name.
package search

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

//go:embed search.md
var description string

//go:embed search.json
var parameters json.RawMessage

// name is the function under which a model sees the tool.
const name = "tool_search"

// Kind returns the kind of tool_search.
func Kind() tool.Kind {
	return tool.Kind{
		Type: berth.ToolSearch, Name: name,
		Rules: func(r *tool.Registry) tool.Rules {
			return tool.Rules{Tool: toolRule, Found: toolRule,
				Call:   rule.Call(rule.Fields{"arguments": rule.AnyObject, "execution": execution}, "arguments"),
				Output: rule.Call(rule.Fields{"tools": rule.List(r.FoundRule(), 128), "execution": execution}, "tools")}
		},
		Bind: func(_ tool.Context, t berth.Tool) (tool.Tool, error) {
			search, err := tool.Decode[berth.ToolSearchTool](t, "tool search")
			return Tool{search: search}, err
		},
		Calls: &tool.Calls{Call: berth.ItemToolSearchCall, Output: berth.ItemToolSearchOutput,
			CallPrefix: berth.PrefixToolSearch, OutputPrefix: berth.PrefixToolSearchOut,
			LowerCall: lowerCall, LowerOutput: lowerOutput, Offers: tool.ToolsOf,
			Fill: func(_ berth.Item, fields map[string]any) error {
				fields["execution"] = "client" // the only one
				return nil
			}},
	}
}

// toolRule requires "execution": "client". Without it OpenAI's default is the server.
func toolRule(at string, v any) error {
	err := rule.Object(rule.Fields{"type": rule.AnyText, "execution": execution, "description": rule.AnyText, "parameters": rule.AnyObject})(at, v)
	if err == nil && v.(map[string]any)["execution"] == nil {
		return execution(rule.Join(at, "execution"), "server")
	}
	return err
}

func execution(at string, v any) error {
	if err := rule.OneOf("server", "client")(at, v); err != nil {
		return err
	}
	if v == "server" {
		return rule.Errorf("unsupported_value", at, "Unsupported value: '%s' cannot be 'server'. This server does not search for tools; let the client do it.", at)
	}
	return nil
}

// A Tool searches for tools on the client. A later request brings the tools that the
// client found in its input, and the engine binds them there.
type Tool struct {
	tool.Client
	search berth.ToolSearchTool
}

var _ tool.Tool = Tool{}

// Spec implements tool.Tool.
func (s Tool) Spec() tool.Spec {
	shown := s.search.Parameters
	if len(shown) == 0 || string(shown) == "null" {
		shown = parameters
	}
	return tool.Spec{Function: tool.Function(name, cmp.Or(s.search.Description, description), shown), Call: berth.ItemToolSearchCall, Client: true}
}

// NewCall implements tool.Tool.
func (Tool) NewCall(callID string) tool.Call {
	return &searchCall{item: berth.ToolSearchCall{ID: berth.NewID(berth.PrefixToolSearch), Type: berth.ItemToolSearchCall,
		Status: berth.StatusInProgress, Arguments: json.RawMessage("{}"), CallID: callID, Execution: "client"}}
}

func lowerCall(item berth.Item) (function, arguments string, err error) {
	var call berth.ToolSearchCall
	err = item.Decode(&call)
	return name, string(call.Arguments), err
}

// lowerOutput returns the names of the tools that were found. The model sees their
// functions among those of its request.
func lowerOutput(item berth.Item) (json.RawMessage, error) {
	tools, err := tool.ToolsOf(item)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range tools {
		if t.Type() != berth.ToolNamespace {
			names = append(names, cmp.Or(t.Name(), t.Type()))
			continue
		}
		var n berth.NamespaceTool
		if err := t.Decode(&n); err != nil {
			return nil, err
		}
		for _, inner := range n.Tools {
			names = append(names, tool.FunctionName(n.Name, inner.Name()))
		}
	}
	if len(names) == 0 {
		return berth.StringDelta("No tools were found."), nil
	}
	return berth.StringDelta("These can be called now: " + strings.Join(names, ", ")), nil
}

// A searchCall is one call. The wire shows it when it is complete.
type searchCall struct {
	tool.ClientCall
	item  berth.ToolSearchCall
	valid bool
}

func (c *searchCall) Item() berth.Item {
	if !c.valid {
		return berth.Item{}
	}
	return berth.NewItem(c.item)
}

func (c *searchCall) Write(string) []berth.Event { return nil }

func (c *searchCall) Close(arguments string) ([]berth.Event, berth.Item, string) {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(arguments), &object) != nil || object == nil {
		return nil, berth.Item{}, "The arguments of this call are not a JSON object. Nothing was searched."
	}
	c.valid = true
	closed := c.item
	closed.Status, closed.Arguments = berth.StatusCompleted, json.RawMessage(arguments)
	return nil, berth.NewItem(closed), ""
}
