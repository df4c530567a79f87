// Package tool is the seam between the engine and the tools that a model may call,
// and the registry of their kinds. The tools are in the packages below it: hosted
// tools, which run on the server, and those that the client runs.
package tool

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/berth-run/berth"
)

// ErrDetached is the cause of a context that ends because this process stops while
// the work goes on: a call stops nothing, and another process resumes it.
var ErrDetached = errors.New("the server is stopping; the call goes on without it")

// A Tool is a tool in one response, bound to where it acts. The model sees a
// function; the wire shows the tool's own items and events. The engine carries
// the one into the other and knows no tool by name.
//
// To add a tool:
//  1. make a directory for it below this package, with a .md file that the model
//     reads and a .json file that describes its arguments;
//  2. implement Tool and Call in it, and return its Kind, which names the types of
//     its items (a function Kind or New; see tool/shell and tool/patch);
//  3. add the Kind to tool/standard.
type Tool interface {
	// Spec returns the function that the model sees.
	Spec() Spec

	// NewCall opens a call that the model has begun to write.
	NewCall(callID string) Call

	// ResumeCall resumes a call of a hosted tool whose item is done and whose output
	// is not, in a process that did not start it. output is its output item, or the
	// zero Item, and stored are the events about that. A call that the model did not
	// finish was closed as incomplete when its turn broke off, and was never made:
	// ResumeCall returns a nil Call for it.
	ResumeCall(item, output berth.Item, stored []berth.Event) (Call, error)
}

// A Spec is a function as a model sees it.
type Spec struct {
	Function berth.FunctionTool
	Call     berth.ItemType // of the items that the wire shows of its calls
	Client   bool           // the client runs the calls
}

// A Call is one call of a tool. Its methods are called in the order Write…,
// Close, Run, by one goroutine, with Item in between; Run only for a hosted tool.
// Events returned or emitted need no sequence number and no output index; the
// engine fills them in.
type Call interface {
	// Item returns the call's item as it is when opened, in progress. It is the
	// zero Item until enough of the arguments is known to show one.
	Item() berth.Item

	// Write adds to the JSON arguments. It returns events about the item: none
	// before Item returns it.
	Write(arguments string) []berth.Event

	// Close ends the arguments, and is given all of them. It returns the last events
	// and the finished item, which is opened first if it is not open. A refusal is a
	// message to the model about a call that can neither be run nor be handed to the
	// client. An item that is not open by then is never shown. Bad arguments of a
	// hosted tool may also be left to Run, which answers the model with the error.
	Close(arguments string) (events []berth.Event, item berth.Item, refusal string)

	// Run does the work and reports it to out. An error means that the work could
	// not be done at all and ends the response; what the model should know, such as
	// a command that failed, is output instead. After ctx ends Run stops what it
	// started, unless context.Cause(ctx) is ErrDetached.
	Run(ctx context.Context, out Emitter) error
}

// An Emitter adds output items to the response and events about them. When a method
// returns nil, what it was given is stored.
type Emitter interface {
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
	return berth.FunctionTool{Type: berth.ToolFunction, Name: name, Description: description, Parameters: parameters, Strict: &strict}
}
