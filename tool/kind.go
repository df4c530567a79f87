package tool

import (
	"context"
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
)

// A Kind is one kind of tool: the fields that a request may set, how it is bound to a
// response, and how its calls look on the wire and to a model. Functions that a kind does
// not need are nil.
type Kind struct {
	Type string // of an entry of "tools"
	Name string // of the function that a model sees; empty if each tool has its own

	// Alias is another type by which requests may name the kind; answers show Type.
	Alias string

	// Rules returns the rules for the JSON that a client sends.
	Rules func(*Registry) Rules

	// Chat describes the tool in Chat Completions; nil refuses it there.
	Chat *Chat

	// Bind returns the tool for one response. A kind has one of Bind, Group and Source.
	Bind func(Context, berth.Tool) (Tool, error)

	// Group returns the tools that an entry of "tools" holds, and their namespace.
	Group func(berth.Tool) (namespace string, tools []berth.Tool, err error)

	// Source returns the source of the tools of an entry of "tools". Listing is
	// the type of the items that list them, with ids of ListingPrefix; models do not see them.
	Source        func(Context, berth.Tool) (Source, error)
	Listing       berth.ItemType
	ListingPrefix string

	// Admit refuses an entry of "tools" of a new request that names objects which do not
	// exist. nil means that it names none.
	Admit func(context.Context, berth.Caller, berth.Tool) error

	// Complete returns an entry of "tools" of a new request with what it omits. nil means
	// unchanged.
	Complete func(context.Context, berth.Caller, berth.Tool) (berth.Tool, error)

	// Show returns an entry of "tools" as the response shows and stores it: without secrets.
	// nil means unchanged.
	Show func(berth.Tool) (berth.Tool, error)

	// Container describes the container in which the tool's calls run; nil means that
	// they need none.
	Container *Container

	// Advice returns a warning for models of a family about their usual mistakes with the
	// tool. The engine appends it to the description of the function.
	Advice func(family string) string

	// Calls describe the calls of the tool; nil for a Group.
	Calls *Calls
}

// A Context holds the arguments of Kind.Bind besides the tool.
type Context struct {
	Caller    berth.Caller // with the response
	Namespace string       // of the tool, or empty
	Include   []string     // the request's "include"
	Tools     []berth.Tool // the request's "tools"

	// Native reports whether the upstream has the tool of a type of "tools" itself; nil means
	// that it has none. Such a tool sets FunctionTool.Native.
	Native func(toolType string) bool

	Pictures Pictures // of the response; nil if none can be read
}

// IsNative reports whether the upstream has the tool of a type of "tools" itself.
func (c Context) IsNative(toolType string) bool { return c.Native != nil && c.Native(toolType) }

// Pictures are images that a call may read. Errors that are *berth.Error are for the
// client. Only Call.Run may use them.
type Pictures interface {
	// Conversation returns the images that the user sent and those that were generated, in
	// order, as data: URLs or links.
	Conversation(context.Context) ([]string, error)
	// File returns an uploaded image as a data: URL.
	File(context.Context, berth.FileID) (string, error)
}

// A Container describes how a tool names the container of its calls.
type Container struct {
	Param string // the field of the tool with the container; default "environment"
	// Environment returns the environment that the tool requests, or nil if its calls run
	// outside containers.
	Environment func(berth.Tool) (*berth.ShellToolEnvironment, error)
	// Settle returns the tool with a reference to its container, as the response shows it.
	Settle func(berth.Tool, berth.ContainerID) (berth.Tool, error)
}

// A Chat describes a hosted tool in Chat Completions.
type Chat struct {
	Tool   rule.Rule // an entry of "tools"
	Choice rule.Rule // a "tool_choice" that forces the tool, or an entry of "allowed_tools"
	// Convert returns an entry of "tools" in the form of Responses; nil leaves it unchanged.
	Convert func(entry json.RawMessage) (berth.Tool, error)
}

// Calls describe the calls of one kind of tool: the types of their items, and functions
// that read the items alone. Items in the history may belong to tools that the current
// request does not offer.
//
// Most kinds have two types of items. If Output is empty, a call's own item holds its
// output. Such an item stays open until Run closes it; see Emitter.
type Calls struct {
	Call, Output             berth.ItemType
	CallPrefix, OutputPrefix string // of the ids that items without one get

	// LowerCall returns the function call that a model sees: the function's name and
	// the JSON arguments.
	LowerCall func(call berth.Item) (name, arguments string, err error)
	// LowerOutput returns the output that a model sees: JSON of a string or of a list
	// of contents. If a call's own item holds its output, nil means that it has none.
	LowerOutput func(output berth.Item) (json.RawMessage, error)

	// Answer returns what a program gets for a call, by the item with its output. nil means
	// the output that a model sees.
	Answer func(output berth.Item) (Answer, error)

	// CheckOutput refuses the output of a client for a call, with the field as the Param of
	// the error; nil accepts any.
	CheckOutput func(call, output berth.Item) error

	// Hosted reports whether the server answers a call; nil means never.
	Hosted func(call berth.Item) bool
	// Outcome returns how the work of a call ended, by its output; nil means OK.
	Outcome func(output berth.Item) Outcome
	// Offers returns the tools that an output adds to those of the request.
	Offers func(output berth.Item) ([]berth.Tool, error)
	// Citables returns what a model may cite of an output; nil means nothing.
	Citables func(output berth.Item) []Citable
	// Outline returns a call or an output as lines of text without identifiers, to compare
	// two runs; nil means its function with arguments or output.
	Outline func(callOrOutput berth.Item) []string

	// Fill sets the fields that the wire shows of an item and that a client omitted.
	Fill func(it berth.Item, fields map[string]any) error
	// Draft returns a Draft for a call that is streamed; nil means that its kind streams
	// no content.
	Draft func() Draft

	// Mark returns why the engine made a call, for items that do not hold it in "berth".
	Mark func(call berth.Item) berth.CallBerth

	// Commands returns the commands of a call, which an approval policy matches; nil means
	// that no call needs approval.
	Commands func(call berth.Item) []string
	// Asks reports whether the client must approve a hosted call, whatever the policy; nil means
	// that no call needs it.
	Asks func(call berth.Item) bool
	// Script returns the arguments of a call that runs commands. timeoutMS bounds each
	// command; nil means the default. Script is nil for a kind that runs no commands.
	Script func(commands []string, timeoutMS *int) (arguments string)
}

// A Citable is a part of an output that a model may cite in its answer.
type Citable struct {
	// Mark is the text with which the model cites it, between MarkStart and MarkEnd.
	Mark string
	// Text replaces the mark in the answer. It may be empty.
	Text string
	// Annotation returns the annotation of a citation. start and end are the place of Text
	// in the answer, in characters; end is exclusive.
	Annotation func(start, end int) json.RawMessage
}

// The brackets of a Mark, which models know from the hosted service.
const (
	MarkStart = "【"
	MarkEnd   = "】"
)

// An Outcome is how the work of a call ended.
type Outcome int

// The outcomes.
const (
	OK       Outcome = iota
	Failed           // a command failed, for example
	TimedOut         // the work exceeded its time limit
)

// A Draft collects the streamed content of an open item, so that the item can be closed
// before its end.
type Draft interface {
	// Add adds an event about the item.
	Add(*berth.Event)
	// Fields returns the fields of the item that hold the streamed content.
	Fields(berth.Item) map[string]any
}

// FieldDraft returns the Calls.Draft of calls that stream the text of one field.
func FieldDraft(name string) func() Draft {
	return func() Draft {
		return TextDraft(func(_ berth.Item, text string) map[string]any { return map[string]any{name: text} })
	}
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
