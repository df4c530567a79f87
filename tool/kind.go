package tool

import (
	"encoding/json"

	"github.com/berth-run/berth"
)

// A Kind is one kind of tool: what a request may say about it, how it is bound to a
// response, and how its calls look on the wire and to a model. Functions that are
// not needed are nil.
type Kind struct {
	Type string // of an entry of "tools"
	Name string // of the function that a model sees; empty if each tool has its own

	// Rules returns the rules for the JSON that a client sends.
	Rules func(*Registry) Rules

	// Bind returns the tool for one response. A kind has either Bind or Group.
	Bind func(Context, berth.Tool) (Tool, error)

	// Group returns the tools that an entry of "tools" holds, and their namespace.
	Group func(berth.Tool) (namespace string, tools []berth.Tool, err error)

	// Container says how the tool asks for the container in which its calls run; nil
	// means that it needs none.
	Container *Container

	// Advice returns what models of a family get wrong about the tool. It is added to
	// the description of the function.
	Advice func(family string) string

	// Calls describe the calls of the tool; nil for a Group.
	Calls *Calls
}

// Context is what a tool is bound with.
type Context struct {
	Caller    berth.Caller // with the response
	Namespace string       // of the tool, or empty
}

// A Container says how a tool asks for a container.
type Container struct {
	// Environment returns what the tool asks for, or nil if its calls run elsewhere.
	Environment func(berth.Tool) (*berth.ShellToolEnvironment, error)
	// Settle returns the tool as the response shows it: with a reference to its
	// container.
	Settle func(berth.Tool, berth.ContainerID) (berth.Tool, error)
}

// Calls describe the calls of one kind of tool: the types of their items, and what
// can be learned from the items alone. History may hold calls of tools that the
// present request does not offer.
type Calls struct {
	Call, Output             berth.ItemType
	CallPrefix, OutputPrefix string // of the ids that items without one get

	// LowerCall returns the function call that a model sees: the function's name and
	// the JSON arguments.
	LowerCall func(call berth.Item) (name, arguments string, err error)
	// LowerOutput returns the output that a model sees: JSON of a string or of a list
	// of contents.
	LowerOutput func(output berth.Item) (json.RawMessage, error)

	// Hosted reports whether the server answers a call; nil means never.
	Hosted func(call berth.Item) bool
	// Outcome tells how the work of a call ended, by its output; nil means OK.
	Outcome func(output berth.Item) Outcome
	// Offers returns the tools that an output adds to those of the request.
	Offers func(output berth.Item) ([]berth.Tool, error)

	// Fill sets the fields that the wire shows of an item and that a client left out.
	Fill func(it berth.Item, fields map[string]any) error
	// Draft collects what is streamed of a call; nil means nothing is.
	Draft func() Draft

	// Commands returns the commands of a call, which an approval policy is asked
	// about; nil means that no call needs approval.
	Commands func(call berth.Item) []string
	// Script returns the arguments of a call that runs commands, with a timeout for
	// each or nil; a kind without it runs none.
	Script func(commands []string, timeoutMS *int) (arguments string)
}

// An Outcome is how the work of a call ended.
type Outcome int

// The outcomes.
const (
	OK       Outcome = iota
	Failed           // a command failed, for example
	TimedOut         // it was ended because it took too long
)

// A Draft collects what was streamed of an item that is open, so that the item can be
// closed before its end.
type Draft interface {
	// Add adds an event about the item.
	Add(*berth.Event)
	// Fields returns the fields of the item that hold what was streamed.
	Fields(berth.Item) map[string]any
}

// TextDraft returns a Draft for calls that stream one text. fields returns the fields
// that hold it.
func TextDraft(fields func(call berth.Item, text string) map[string]any) Draft {
	return &textDraft{fields: fields}
}

type textDraft struct {
	fields func(berth.Item, string) map[string]any
	text   []byte
}

func (d *textDraft) Add(ev *berth.Event) {
	if text, ok := ev.DeltaText(); ok {
		d.text = append(d.text, text...)
	}
}

func (d *textDraft) Fields(it berth.Item) map[string]any { return d.fields(it, string(d.text)) }
