// Package tool defines the tools that a model may call, and the registry of their kinds.
// The tools are in the packages below it: hosted tools, which run on the server, and tools
// that the client runs.
package tool

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/berth-run/berth"
)

// ErrDetached is the cause of a context that ends because this process stops, or has lost the
// response to another one, while the work continues. A call then stops nothing, and the other process
// resumes it.
var ErrDetached = errors.New("the server is stopping; the call continues without it")

// A Tool is a tool of one response, bound to its container or client. The model sees a
// function; the wire shows the tool's own items and events. The engine translates between
// them and knows no tool by name.
//
// To add a tool:
//  1. make a directory for it below this package, with a .md file that the model reads and
//     a .json file that describes its arguments;
//  2. implement Tool and Call in it, and a function that returns its Kind; see tool/shell
//     and tool/patch;
//  3. add the Kind to tool/standard.
type Tool interface {
	// Spec returns the function that the model sees.
	Spec() Spec

	// NewCall opens a call that the model has started to write.
	NewCall(callID string) Call

	// ResumeCall resumes a call of a hosted tool in another process than the one that
	// started it. The call's item is done and its output is not. output is the output
	// item, or the zero Item, and stored are the events about it. ResumeCall returns a nil
	// Call for an incomplete item, which the model did not finish and which was never run.
	//
	// The item of a call that holds its own output is still open. stored are then the events
	// about this item, and a nil Call means that the model did not finish it; the engine
	// closes it as incomplete.
	ResumeCall(item, output berth.Item, stored []berth.Event) (Call, error)
}

// A Spec is a function as a model sees it.
type Spec struct {
	Function berth.FunctionTool
	Call     berth.ItemType // of the items that the wire shows of its calls
	Client   bool           // the client runs the calls
}

// A Call is one call of a tool. One goroutine calls its methods in the order Write…,
// Close, Run, with Item in between; Run only for a hosted tool. Events need no sequence
// number and no output index; the engine sets both.
type Call interface {
	// Item returns the call's item as opened, in progress. It returns the zero Item until
	// the arguments suffice to show one.
	Item() berth.Item

	// Write adds JSON arguments. It returns events about the item, but none before Item
	// returns it.
	Write(arguments string) []berth.Event

	// Close ends the arguments and receives all of them. It returns the last events and
	// the finished item, which the engine opens first if necessary. A refusal is a message
	// to the model about a call that can neither run nor be passed to the client. If such a
	// call has no item yet, it is never shown. A hosted tool may instead accept invalid
	// arguments, and let Run report them to the model. The item of a call that holds its own
	// output stays open until Run closes it, unless the call is refused.
	Close(arguments string) (events []berth.Event, item berth.Item, refusal string)

	// Run does the work and writes its results to out. Results for the model, such as a
	// failed command, are output. An error means that the work could not be done at all,
	// and fails the response. When ctx ends, Run stops what it started, unless
	// context.Cause(ctx) is ErrDetached.
	Run(ctx context.Context, out Emitter) error
}

// An Emitter adds output items to the response and events about them. When a method
// returns nil, its items and events are stored.
type Emitter interface {
	// Call returns the index of the call's own item, or -1 without a call. Run closes that
	// item with Done if it holds the call's output.
	Call() int
	// Add opens an item at the next place in the output.
	Add(ctx context.Context, item berth.Item) (index int, err error)
	// Emit adds events about the item at index.
	Emit(ctx context.Context, index int, events ...berth.Event) error
	// Done closes the item at index in its final form.
	Done(ctx context.Context, index int, item berth.Item) error
}

// Function returns the function of a tool that Berth describes to the model.
func Function(name, description string, parameters json.RawMessage) berth.FunctionTool {
	strict := false
	return berth.FunctionTool{Type: berth.ToolFunction, Name: name, Description: description, Parameters: parameters,
		Strict: &strict}
}
