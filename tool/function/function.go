// Package function is the functions of the client. The model calls them and the client
// runs them.
package function

import (
	"encoding/json"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

// Kind returns the functions of the client.
func Kind() tool.Kind {
	offered := rule.StrictFunction(rule.OpenObject( // as hosted: toolkits add keys of their own
		rule.Fields{
			"type": rule.AnyText, "name": rule.FunctionName, "description": rule.AnyText,
			"parameters": rule.AnyObject, "strict": rule.Boolean, "output_schema": rule.AnyObject,
			"allowed_callers": rule.Callers, "defer_loading": rule.Boolean, "async": rule.OnlyFalse,
		}, "name"))
	return tool.Kind{
		Type: berth.ToolFunction,
		Rules: func(*tool.Registry) tool.Rules {
			return tool.NamedRules(offered, "arguments",
				rule.Fields{"output": rule.Output, "name": rule.Text(1, 128), "namespace": rule.NamespaceName})
		},
		Bind: func(c tool.Context, t berth.Tool) (tool.Tool, error) {
			f, err := tool.Decode[berth.FunctionTool](t, "function tool")
			if err != nil {
				return nil, err
			}
			return New(f, c.Namespace), nil
		},
		Calls: &tool.Calls{Call: berth.ItemFunctionCall, Output: berth.ItemFunctionCallOutput,
			CallPrefix: berth.PrefixFunctionCall, OutputPrefix: berth.PrefixFunctionOutput,
			LowerCall: lowerCall, LowerOutput: tool.SameOutput, Draft: tool.FieldDraft("arguments")},
	}
}

// A Tool is a function of the client.
type Tool struct {
	tool.Client
	function  berth.FunctionTool
	namespace string
}

var _ tool.Tool = (*Tool)(nil)

// New returns a function of the client. namespace may be empty.
func New(f berth.FunctionTool, namespace string) *Tool {
	if string(f.Parameters) == "null" {
		f.Parameters = nil
	}
	return &Tool{function: f, namespace: namespace}
}

// Spec implements tool.Tool.
func (f *Tool) Spec() tool.Spec {
	shown := f.function
	shown.Name = tool.FunctionName(f.namespace, f.function.Name)
	if len(shown.OutputSchema) > 0 && string(shown.OutputSchema) != "null" {
		shown.Description = fmt.Sprintf("%s\n\nReturns JSON of this schema: %s", shown.Description, shown.OutputSchema)
		shown.OutputSchema = nil
	}
	return tool.Spec{Function: shown, Call: berth.ItemFunctionCall, Client: true}
}

// NewCall implements tool.Tool.
func (f *Tool) NewCall(callID string) tool.Call {
	return &functionCall{item: berth.FunctionCall{ID: berth.NewID(berth.PrefixFunctionCall),
		Type:   berth.ItemFunctionCall,
		Status: berth.StatusInProgress, CallID: callID, Name: f.function.Name, Namespace: f.namespace}}
}

// lowerCall adds the namespace to the name of a function call.
func lowerCall(item berth.Item) (name, arguments string, err error) {
	var call berth.FunctionCall
	err = item.Decode(&call)
	return tool.FunctionName(call.Namespace, call.Name), call.Arguments, err
}

// A functionCall is a call as the model wrote it.
type functionCall struct {
	tool.ClientCall
	item berth.FunctionCall
}

func (c *functionCall) Item() berth.Item { return berth.NewItem(c.item) }

func (c *functionCall) Write(arguments string) []berth.Event {
	return []berth.Event{{Type: berth.EventFunctionArgumentsDelta, ItemID: c.item.ID,
		Delta: berth.StringDelta(arguments)}}
}

func (c *functionCall) Close(arguments string) ([]berth.Event, berth.Item, string) {
	var refusal string
	c.item.Arguments, c.item.Status = arguments, berth.StatusCompleted
	if arguments != "" && !json.Valid([]byte(arguments)) {
		c.item.Status, refusal = berth.StatusIncomplete,
			"The arguments of this call are not valid JSON. Nothing was done."
	}
	return []berth.Event{{Type: berth.EventFunctionArgumentsDone, ItemID: c.item.ID, Name: c.item.Name,
		Arguments: &arguments}}, c.Item(), refusal
}
