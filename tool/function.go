package tool

import (
	"encoding/json"
	"fmt"

	"github.com/berth-run/berth"
)

// A Function is a function of the client's.
type Function struct {
	client
	tool      berth.FunctionTool
	namespace string
}

var _ Tool = (*Function)(nil)

// NewFunction returns a function of the client's, in a namespace or none.
func NewFunction(tool berth.FunctionTool, namespace string) *Function {
	if string(tool.Parameters) == "null" {
		tool.Parameters = nil
	}
	return &Function{tool: tool, namespace: namespace}
}

func (f *Function) Spec() Spec {
	shown := f.tool
	shown.Name = FunctionName(f.namespace, f.tool.Name)
	if len(shown.OutputSchema) > 0 && string(shown.OutputSchema) != "null" {
		shown.Description = fmt.Sprintf("%s\n\nReturns JSON of this schema: %s", shown.Description, shown.OutputSchema)
		shown.OutputSchema = nil
	}
	return Spec{Function: shown, Call: berth.ItemFunctionCall, Client: true}
}

func (f *Function) NewCall(callID string) Call {
	return &functionCall{item: berth.FunctionCall{ID: berth.NewID(berth.PrefixFunctionCall), Type: berth.ItemFunctionCall,
		Status: berth.StatusInProgress, CallID: callID, Name: f.tool.Name, Namespace: f.namespace}}
}

// lowerFunctionCall leaves a function call as it is, but for its namespace.
func lowerFunctionCall(item berth.Item) (name, arguments string, err error) {
	var call berth.FunctionCall
	err = item.Decode(&call)
	return FunctionName(call.Namespace, call.Name), call.Arguments, err
}

// A functionCall is a call as the model wrote it.
type functionCall struct {
	clientCall
	item berth.FunctionCall
}

func (c *functionCall) Item() berth.Item { return berth.NewItem(c.item) }

func (c *functionCall) Write(arguments string) []berth.Event {
	return []berth.Event{{Type: berth.EventFunctionArgumentsDelta, ItemID: c.item.ID, Delta: berth.StringDelta(arguments)}}
}

func (c *functionCall) Close(arguments string) ([]berth.Event, berth.Item, string) {
	c.item.Arguments, c.item.Status = arguments, berth.StatusCompleted
	return []berth.Event{{Type: berth.EventFunctionArgumentsDone, ItemID: c.item.ID, Name: c.item.Name, Arguments: &arguments}}, c.Item(), ""
}

// builtIn returns the function of a tool that Berth describes to the model.
func builtIn(name, description string, parameters json.RawMessage) berth.FunctionTool {
	strict := false
	return berth.FunctionTool{Type: berth.ToolFunction, Name: name, Description: description, Parameters: parameters, Strict: &strict}
}
