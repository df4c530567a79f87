package assistants

import (
	"slices"

	"github.com/berth-run/berth"
)

// A ToolCall is a call of a tool as a step shows it. Its type determines its other fields.
type ToolCall struct {
	ID       string    `json:"id"`
	Type     string    `json:"type"`
	Function *Function `json:"function,omitempty"`
}

// A Function is a call of a function that the client runs.
type Function struct {
	Name      string  `json:"name"`
	Arguments string  `json:"arguments"`
	Output    *string `json:"output"`
}

// A RequiredCall is a call that waits for its output.
type RequiredCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"` // "function"
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// A callKind describes how a step shows an item that is a call.
type callKind struct {
	client bool // the client runs the tool and submits the output
	show   func(it berth.Item) ToolCall
}

// callKinds is the table of calls that steps show. To add a tool, add a line here and one
// in toolKinds.
var callKinds = map[berth.ItemType]callKind{
	berth.ItemFunctionCall: {client: true, show: showFunction},
}

func showFunction(it berth.Item) ToolCall {
	f := functionOf(it)
	return ToolCall{ID: f.CallID, Type: "function", Function: &Function{Name: f.Name, Arguments: f.Arguments}}
}

func functionOf(it berth.Item) berth.FunctionCall {
	var f berth.FunctionCall
	_ = it.Decode(&f) // items of the engine are valid
	return f
}

// toolCalls returns the calls of a part with the outputs that the client submitted, if any.
func (p *part) toolCalls(given *answer) []ToolCall {
	calls := make([]ToolCall, len(p.calls))
	for i, it := range p.calls {
		calls[i] = callKinds[it.Type()].show(it)
		if given == nil || !p.needsClient() {
			continue
		}
		if n := slices.IndexFunc(given.outputs, func(o ToolOutput) bool { return o.ToolCallID == it.CallID() }); n >= 0 {
			calls[i].Function.Output = &given.outputs[n].Output
		}
	}
	return calls
}

// waiting returns the calls of a complete response that wait for outputs of the client.
func waiting(leg *berth.Response) []RequiredCall {
	var out []RequiredCall
	for _, p := range parts(leg) {
		if !p.needsClient() {
			continue
		}
		for _, it := range p.calls {
			f := functionOf(it)
			c := RequiredCall{ID: f.CallID, Type: "function"}
			c.Function.Name, c.Function.Arguments = f.Name, f.Arguments
			out = append(out, c)
		}
	}
	return out
}
