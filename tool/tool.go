// Package tool holds what a model may call on the server: the hosted tools.
package tool

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/berth-run/berth"
)

// ErrDetached is the cause of a context that ends because this process is going
// away while the work goes on: nothing is stopped, somebody will resume the call.
var ErrDetached = errors.New("the server is stopping; the call goes on without it")

// A Tool is a hosted tool in one response, bound to where it acts. The model
// sees a function; the wire shows the tool's own items and events. The engine
// carries the one into the other and knows no tool by name.
//
// To add a tool:
//  1. implement Tool and Call in a file of this package, with the text that the
//     model reads in a .md file beside it;
//  2. give the wire's item and event types to the root package;
//  3. bind it in the engine's tool table (engine/tools.go).
type Tool interface {
	// Spec returns the function that the model sees.
	Spec() Spec

	// NewCall opens a call that the model has begun to write.
	NewCall(itemID, callID string) Call

	// ResumeCall takes up a call whose item is done and whose output is not, in a
	// process that did not start it. told are the events about its output item
	// that were stored before, with output being that item, or the zero Item.
	ResumeCall(item, output berth.Item, told []berth.Event) (Call, error)
}

// Lower turns an item of a hosted tool into the function_call or
// function_call_output that a model sees of it; other items are returned as they
// are. It needs no bound tool: history may hold calls of tools that the present
// request does not offer.
func Lower(item berth.Item) (berth.Item, error) {
	switch item.Type() {
	case berth.ItemShellCall:
		return lowerShellCall(item)
	case berth.ItemShellCallOutput:
		return lowerShellOutput(item)
	}
	return item, nil
}

// A Spec is a function as a model sees it.
type Spec struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON schema
	Client      bool            // the client runs the calls; Run is never called
}

// A Call is one call of a hosted tool. Its methods are called in the order Item,
// Write…, Close, Run, by one goroutine. Events returned or emitted need no
// sequence number and no output index; the engine fills them in.
type Call interface {
	// Item returns the call's item as it is when opened, in progress.
	Item() berth.Item

	// Write takes more of the JSON arguments and returns what there is to tell.
	Write(arguments string) []berth.Event

	// Close takes the end of the arguments: it returns the last events and the
	// finished item. Arguments that cannot be used make a call whose Run answers
	// the model with the error.
	Close() ([]berth.Event, berth.Item)

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
