// Package search is the tool_search tool, with which a model searches for further tools: the
// client's own search, or the server's among the deferred tools of the request. It also has
// namespaces, which group tools under a name.
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
				Call:   itemRule(rule.Fields{"arguments": rule.AnyObject, "execution": execution}, "arguments"),
				Output: itemRule(rule.Fields{"tools": rule.List(r.FoundRule(), 128), "execution": execution}, "tools")}
		},
		Bind: bind,
		Calls: &tool.Calls{Call: berth.ItemToolSearchCall, Output: berth.ItemToolSearchOutput,
			CallPrefix: berth.PrefixToolSearch, OutputPrefix: berth.PrefixToolSearchOut,
			LowerCall: lowerCall, LowerOutput: lowerOutput, Offers: tool.ToolsOf, Hosted: hosted, Fill: fill},
	}
}

// toolRule refuses an execution of null, which the wire cannot show.
func toolRule(at string, v any) error {
	err := rule.Object(rule.Fields{"type": rule.AnyText, "execution": execution, "description": rule.AnyText,
		"parameters": rule.AnyObject})(at, v)
	if err == nil {
		if e, sent := v.(map[string]any)["execution"]; sent && e == nil {
			return rule.WrongType(rule.Join(at, "execution"), "one of 'server' or 'client'", nil)
		}
	}
	return err
}

var execution = rule.OneOf(berth.ExecutionServer, berth.ExecutionClient)

// itemRule checks a call or an output. Those of a search by the server have no call_id.
func itemRule(fields rule.Fields, required string) rule.Rule {
	byClient, byServer := rule.Call(fields, required), rule.Item(fields, required)
	return func(at string, v any) error {
		if obj, ok := v.(map[string]any); ok && obj["execution"] == berth.ExecutionServer {
			return byServer(at, v)
		}
		return byClient(at, v)
	}
}

// fill sets the execution of an item that does not name it, and the call_id of one that has
// none.
func fill(it berth.Item, fields map[string]any) error {
	var c struct {
		Execution string `json:"execution"`
	}
	if err := it.Decode(&c); err != nil {
		return err
	}
	if c.Execution == "" {
		fields["execution"] = berth.ExecutionClient
	}
	if it.CallID() == "" {
		fields["call_id"] = nil
	}
	return nil
}

// hosted reports whether the server executes a search.
func hosted(it berth.Item) bool {
	var c struct {
		Execution string `json:"execution"`
	}
	return it.Decode(&c) == nil && c.Execution == berth.ExecutionServer
}

// bind returns the search of the server, or that of the client.
func bind(c tool.Context, t berth.Tool) (tool.Tool, error) {
	search, err := tool.Decode[berth.ToolSearchTool](t, "tool search")
	if err != nil || search.Execution == berth.ExecutionClient {
		return Tool{search: search}, err
	}
	entries, err := deferred(c.Tools)
	return &serverTool{search: search, entries: entries}, err
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
	return tool.Spec{Function: tool.Function(name, cmp.Or(s.search.Description, description), shown),
		Call: berth.ItemToolSearchCall, Client: true}
}

// NewCall implements tool.Tool.
func (Tool) NewCall(callID string) tool.Call {
	return &searchCall{item: berth.ToolSearchCall{ID: berth.NewID(berth.PrefixToolSearch),
		Type:   berth.ItemToolSearchCall,
		Status: berth.StatusInProgress, Arguments: json.RawMessage("{}"), CallID: &callID,
		Execution: berth.ExecutionClient}}
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
