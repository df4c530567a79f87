// Package tool holds what a model may call: the hosted tools, which run on the server, and those that the client runs.
package tool

import (
	"context"
	"errors"

	"github.com/berth-run/berth"
)

// ErrDetached is the cause of a context that ends because this process is going
// away while the work goes on: nothing is stopped, somebody will resume the call.
var ErrDetached = errors.New("the server is stopping; the call goes on without it")

// A Tool is a tool in one response, bound to where it acts. The model sees a
// function; the wire shows the tool's own items and events. The engine carries
// the one into the other and knows no tool by name.
//
// To add a tool:
//  1. implement Tool and Call in a file of this package, with the text that the
//     model reads in a .md file beside it;
//  2. give the wire's item and event types to the root package, and their kind
//     to the table in kind.go;
//  3. bind it in the engine's tool table (engine/tools.go) and let api/tools.go
//     and api/item.go accept it.
type Tool interface {
	// Spec returns the function that the model sees.
	Spec() Spec

	// NewCall opens a call that the model has begun to write.
	NewCall(callID string) Call

	// ResumeCall takes up a call of a hosted tool whose item is done and whose
	// output is not, in a process that did not start it. told are the events about
	// its output item that were stored before, with output being that item, or the
	// zero Item. A call that the model did not finish, which was closed as incomplete
	// when its turn broke off, was never made: ResumeCall returns a nil Call for it.
	ResumeCall(item, output berth.Item, told []berth.Event) (Call, error)
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
	// zero Item until what was written tells enough to show one.
	Item() berth.Item

	// Write takes more of the JSON arguments and returns what there is to tell
	// once the item is open: nothing before Item returns it.
	Write(arguments string) []berth.Event

	// Close takes the end of the arguments, and all of them: it returns the last
	// events and the finished item, to be opened first if that has not been done.
	// A refusal is what is wrong with a call that can neither be run nor be handed
	// to the client, in words for the model. An item that was not opened by then is
	// never shown. Bad arguments of a hosted tool may also be left to Run, which
	// answers the model with the error.
	Close(arguments string) (events []berth.Event, item berth.Item, refusal string)

	// Run does the work and tells of it through out. An error means that the work
	// could not be done at all and ends the response; what the model should know,
	// such as a command that failed, is told as output instead. After ctx ends
	// Run stops what it started, unless context.Cause(ctx) is ErrDetached.
	Run(ctx context.Context, out Emitter) error
}

// An Emitter adds output items to the response and tells events about them.
// What it returned for has been stored.
type Emitter interface {
	// Add opens an item at the next place in the output.
	Add(ctx context.Context, item berth.Item) (index int, err error)
	// Emit tells events about the item at index.
	Emit(ctx context.Context, index int, events ...berth.Event) error
	// Done closes the item at index in its final form.
	Done(ctx context.Context, index int, item berth.Item) error
}
