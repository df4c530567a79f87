package tool

import (
	"encoding/json"
	"slices"

	"github.com/berth-run/berth"
)

// A kind is one sort of call: the types of its items, and what a model sees of
// them, which is a function call and its output.
type kind struct {
	call, output berth.ItemType
	// lowerCall returns the name and the JSON arguments of the function call.
	lowerCall func(berth.Item) (name, arguments string, err error)
	// lowerOutput returns the output: JSON of a string, or of a list of contents.
	lowerOutput func(berth.Item) (json.RawMessage, error)
	// hosted says whether a call was the server's to answer; nil is never.
	hosted func(berth.Item) bool
}

// The kinds of calls.
var kinds = []kind{
	{call: berth.ItemFunctionCall, output: berth.ItemFunctionCallOutput, lowerCall: lowerFunctionCall, lowerOutput: sameOutput},
	{call: berth.ItemCustomToolCall, output: berth.ItemCustomToolCallOutput, lowerCall: lowerCustomCall, lowerOutput: sameOutput},
	{call: berth.ItemShellCall, output: berth.ItemShellCallOutput, lowerCall: lowerShellCall, lowerOutput: lowerShellOutput, hosted: inContainer},
	{call: berth.ItemLocalShellCall, output: berth.ItemLocalShellCallOutput, lowerCall: lowerLocalShellCall, lowerOutput: sameOutput},
	{call: berth.ItemApplyPatchCall, output: berth.ItemApplyPatchCallOutput, lowerCall: lowerPatchCall, lowerOutput: lowerPatchOutput},
	{call: berth.ItemToolSearchCall, output: berth.ItemToolSearchOutput, lowerCall: lowerSearchCall, lowerOutput: lowerSearchOutput},
}

func kindOf(match func(kind) bool) *kind {
	if n := slices.IndexFunc(kinds, match); n >= 0 {
		return &kinds[n]
	}
	return nil
}

func ofCall(it berth.Item) *kind {
	return kindOf(func(k kind) bool { return k.call == it.Type() })
}

func ofOutput(it berth.Item) *kind {
	return kindOf(func(k kind) bool { return k.output == it.Type() })
}

// IsCall reports whether an item is a call.
func IsCall(it berth.Item) bool { return ofCall(it) != nil }

// IsOutput reports whether an item is the output of a call.
func IsOutput(it berth.Item) bool { return ofOutput(it) != nil }

// IsHosted reports whether an item is a call that the server answers.
func IsHosted(it berth.Item) bool {
	k := ofCall(it)
	return k != nil && k.hosted != nil && k.hosted(it)
}

// Name returns the function under which a model sees the tool that was called.
func Name(call berth.Item) string {
	k := ofCall(call)
	if k == nil {
		return ""
	}
	name, _, err := k.lowerCall(call)
	if err != nil {
		return ""
	}
	return name
}

// Lower turns the items of a call into the function_call and function_call_output
// that a model sees of them; other items are returned as they are. It needs no
// bound tool: history may hold calls of tools that the present request does not
// offer.
func Lower(item berth.Item) (berth.Item, error) {
	if k := ofCall(item); k != nil {
		name, arguments, err := k.lowerCall(item)
		if err != nil {
			return berth.Item{}, err
		}
		return berth.NewItem(berth.FunctionCall{ID: item.ID(), Type: berth.ItemFunctionCall,
			Status: berth.StatusCompleted, Name: name, CallID: item.CallID(), Arguments: arguments}), nil
	}
	if k := ofOutput(item); k != nil {
		output, err := k.lowerOutput(item)
		if err != nil {
			return berth.Item{}, err
		}
		return berth.NewItem(berth.FunctionCallOutput{ID: item.ID(), Type: berth.ItemFunctionCallOutput,
			Status: berth.StatusCompleted, CallID: item.CallID(), Output: output}), nil
	}
	return item, nil
}

// sameOutput is for outputs that are a string, or a list of contents, on the wire.
func sameOutput(item berth.Item) (json.RawMessage, error) {
	var out struct {
		Output json.RawMessage `json:"output"`
	}
	err := item.Decode(&out)
	return out.Output, err
}

// FunctionName is the function under which a model sees a tool in a namespace,
// which may be empty.
func FunctionName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "__" + name
}
