package tool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
)

// A Registry holds the kinds of tools that a server has. It is immutable and safe for
// concurrent use. A nil Registry is empty.
type Registry struct {
	kinds    map[string]*Kind // by type
	calls    map[berth.ItemType]*Calls
	outputs  map[berth.ItemType]*Calls
	listings map[berth.ItemType]*Kind
	rules    map[string]Rules  // by type
	aliases  map[string]string // types by their aliases
}

// NewRegistry returns a registry of these kinds. Kinds that share a pointer to their Calls
// have the same items. It panics if two kinds have the same type, or if two different Calls
// have the same type of items.
func NewRegistry(kinds ...Kind) *Registry {
	r := &Registry{kinds: map[string]*Kind{}, calls: map[berth.ItemType]*Calls{}, outputs: map[berth.ItemType]*Calls{},
		listings: map[berth.ItemType]*Kind{}, rules: map[string]Rules{}, aliases: map[string]string{}}
	for _, k := range kinds {
		if r.kinds[k.Type] != nil {
			panic(fmt.Sprintf("tool: two kinds of type %q", k.Type))
		}
		r.kinds[k.Type] = &k
		if k.Alias != "" {
			r.aliases[k.Alias] = k.Type
		}
		if k.Listing != "" {
			r.listings[k.Listing] = &k
		}
		c := k.Calls
		if c == nil || r.calls[c.Call] == c {
			continue
		}
		for _, t := range []berth.ItemType{c.Call, c.Output} {
			if r.calls[t] != nil || r.outputs[t] != nil {
				panic(fmt.Sprintf("tool: two kinds with items of type %q", t))
			}
		}
		r.calls[c.Call] = c
		if c.Output != "" {
			r.outputs[c.Output] = c
		}
	}
	for name, k := range r.kinds {
		if k.Rules != nil {
			r.rules[name] = k.Rules(r)
		}
	}
	return r
}

// Kind returns the kind of a type of tool, or nil.
func (r *Registry) Kind(toolType string) *Kind {
	if r == nil {
		return nil
	}
	return r.kinds[toolType]
}

// Canonical returns an entry of "tools", or a "tool_choice" that names one, with the type of its kind in place of an
// alias.
func (r *Registry) Canonical(t berth.Tool) berth.Tool {
	if r == nil || r.aliases[t.Type()] == "" {
		return t
	}
	fields := map[string]json.RawMessage{}
	_ = t.Decode(&fields) // a Tool is an object
	fields["type"] = berth.StringDelta(r.aliases[t.Type()])
	return berth.NewTool(fields)
}

// Complete returns an entry of "tools" of a new request with what it omits.
func (r *Registry) Complete(ctx context.Context, caller berth.Caller, t berth.Tool) (berth.Tool, error) {
	if k := r.Kind(t.Type()); k != nil && k.Complete != nil {
		return k.Complete(ctx, caller, t)
	}
	return t, nil
}

// CallsOf returns the Calls that describe an item, which is a call or an output. It
// returns nil for other items.
func (r *Registry) CallsOf(it berth.Item) *Calls { return r.ofType(it.Type()) }

func (r *Registry) ofType(t berth.ItemType) *Calls {
	if c := r.ofCall(t); c != nil {
		return c
	}
	return r.ofOutput(t)
}

func (r *Registry) ofCall(t berth.ItemType) *Calls {
	if r == nil || t == berth.ItemMessage { // most items are messages
		return nil
	}
	return r.calls[t]
}

func (r *Registry) ofOutput(t berth.ItemType) *Calls {
	if r == nil || t == berth.ItemMessage {
		return nil
	}
	return r.outputs[t]
}

// IsCall reports whether an item is a call.
func (r *Registry) IsCall(it berth.Item) bool { return r.ofCall(it.Type()) != nil }

// IsOutput reports whether an item is the output of a call, and not the call as well.
func (r *Registry) IsOutput(it berth.Item) bool { return r.ofOutput(it.Type()) != nil }

// HoldsOutput reports whether an item is a call that holds its own output.
func (r *Registry) HoldsOutput(it berth.Item) bool {
	c := r.ofCall(it.Type())
	return c != nil && c.Output == ""
}

// IsAnswered reports whether an item is a call that holds its own output and has one.
func (r *Registry) IsAnswered(it berth.Item) bool {
	if !r.HoldsOutput(it) {
		return false
	}
	output, err := r.ofCall(it.Type()).LowerOutput(it)
	return err != nil || output != nil // the error is reported where the item is lowered
}

// IsHosted reports whether an item is a call that the server answers.
func (r *Registry) IsHosted(it berth.Item) bool {
	c := r.ofCall(it.Type())
	return c != nil && c.Hosted != nil && c.Hosted(it)
}

// IsListing reports whether an item lists the tools of a Source.
func (r *Registry) IsListing(it berth.Item) bool { return r != nil && r.listings[it.Type()] != nil }

// MarkOf returns the fields that Berth added to a hosted call. It is zero for any other
// item.
func (r *Registry) MarkOf(it berth.Item) berth.CallBerth {
	if c := r.ofCall(it.Type()); c != nil && c.Mark != nil {
		return c.Mark(it)
	}
	if !bytes.Contains(it.Raw(), []byte(`"berth"`)) || !r.IsHosted(it) {
		return berth.CallBerth{}
	}
	var call struct {
		Berth berth.CallBerth `json:"berth"`
	}
	_ = it.Decode(&call) // an unreadable mark counts as none
	return call.Berth
}

// Outcome returns how a call ended, by the item that holds its output. It returns OK for
// other items.
func (r *Registry) Outcome(it berth.Item) Outcome {
	c := r.ofOutput(it.Type())
	if r.HoldsOutput(it) {
		c = r.ofCall(it.Type())
	}
	if c == nil || c.Outcome == nil {
		return OK
	}
	return c.Outcome(it)
}

// Name returns the name of the function that the model called, or "" if the item is not a
// call.
func (r *Registry) Name(call berth.Item) string {
	c := r.ofCall(call.Type())
	if c == nil {
		return ""
	}
	name, _, err := c.LowerCall(call)
	if err != nil {
		return ""
	}
	return name
}

// Offered returns the tools that an item adds to those of its request. The item is the
// output of a search, or additional_tools.
func (r *Registry) Offered(it berth.Item) ([]berth.Tool, error) {
	if it.Type() == berth.ItemAdditionalTools {
		return ToolsOf(it)
	}
	if c := r.ofOutput(it.Type()); c != nil && c.Offers != nil {
		return c.Offers(it)
	}
	return nil, nil
}

// Citables returns what a model may cite of an item, if it holds the output of a call.
func (r *Registry) Citables(it berth.Item) []Citable {
	c := r.ofOutput(it.Type())
	if r.HoldsOutput(it) {
		c = r.ofCall(it.Type())
	}
	if c == nil || c.Citables == nil {
		return nil
	}
	return c.Citables(it)
}

// ToolsOf returns the "tools" of an item.
func ToolsOf(it berth.Item) ([]berth.Tool, error) {
	var body struct {
		Tools []berth.Tool `json:"tools"`
	}
	err := it.Decode(&body)
	return body.Tools, err
}

// Lower returns a call as the function_call that a model sees, and an output as its
// function_call_output. It returns other items unchanged. The output of a call that holds
// its own is that of LowerAnswer.
func (r *Registry) Lower(item berth.Item) (berth.Item, error) {
	if c := r.ofCall(item.Type()); c != nil {
		name, arguments, err := c.LowerCall(item)
		if err != nil {
			return berth.Item{}, err
		}
		return berth.NewItem(berth.FunctionCall{ID: item.ID(), Type: berth.ItemFunctionCall,
			Status: berth.StatusCompleted, Name: name, CallID: r.callID(item), Arguments: arguments}), nil
	}
	if c := r.ofOutput(item.Type()); c != nil {
		output, err := c.LowerOutput(item)
		if err != nil {
			return berth.Item{}, err
		}
		return berth.NewFunctionCallOutput(item.ID(), r.callID(item), output)
	}
	return item, nil
}

// LowerAnswer returns the function_call_output of a call that holds its own output.
func (r *Registry) LowerAnswer(call berth.Item) (berth.Item, error) {
	output, err := r.ofCall(call.Type()).LowerOutput(call)
	if err != nil {
		return berth.Item{}, err
	}
	return berth.NewFunctionCallOutput("", r.callID(call), output)
}

// callID returns the identifier that a function call and its output share. Calls that hold
// their own output have only the id of their item. Other calls without a call_id, which the
// server executes, are paired with their outputs in order.
func (r *Registry) callID(it berth.Item) string {
	if c := r.CallsOf(it); c != nil && c.Output != "" {
		return cmp.Or(it.CallID(), string(c.Call))
	}
	return cmp.Or(it.CallID(), it.ID())
}

// IsDeferred reports whether a model sees a tool only after a search has found it.
func IsDeferred(t berth.Tool) bool {
	var tool struct {
		DeferLoading bool `json:"defer_loading"`
	}
	return t.Decode(&tool) == nil && tool.DeferLoading
}

// SameOutput is the LowerOutput of kinds whose "output" on the wire is a string or a list
// of contents already.
func SameOutput(item berth.Item) (json.RawMessage, error) {
	var out struct {
		Output json.RawMessage `json:"output"`
	}
	err := item.Decode(&out)
	return out.Output, err
}

// IDPrefix returns the prefix of the ids of a type of item, or "" if it belongs to no
// tool.
func (r *Registry) IDPrefix(t berth.ItemType) string {
	if c := r.ofCall(t); c != nil {
		return c.CallPrefix
	}
	if c := r.ofOutput(t); c != nil {
		return c.OutputPrefix
	}
	if r != nil && r.listings[t] != nil {
		return r.listings[t].ListingPrefix
	}
	return ""
}

// Outline returns a call or an output as lines of text without identifiers, to compare
// two runs. Other items, and those that cannot be read, are one line as well.
func (r *Registry) Outline(it berth.Item) []string {
	if c := r.CallsOf(it); c != nil && c.Outline != nil {
		return c.Outline(it)
	}
	low, err := r.Lower(it)
	if err != nil {
		low = it
	}
	var call struct {
		Name, Arguments string
		Output          json.RawMessage
	}
	_ = low.Decode(&call)
	return []string{fmt.Sprintf("%s: %s %s%s", it.Type(), call.Name, call.Arguments, call.Output)}
}

// Chat returns the hosted tools that Chat Completions offers, by type.
func (r *Registry) Chat() map[string]*Chat {
	chats := map[string]*Chat{}
	if r == nil {
		return chats
	}
	for name, k := range r.kinds {
		if k.Chat != nil {
			chats[name] = k.Chat
		}
	}
	return chats
}

// FromChat returns an entry of "tools" of Chat Completions in the form of Responses. The
// entry must have passed the rule of its kind's Chat.
func (r *Registry) FromChat(toolType string, entry json.RawMessage) (berth.Tool, error) {
	if k := r.Kind(toolType); k != nil && k.Chat != nil && k.Chat.Convert != nil {
		return k.Chat.Convert(entry)
	}
	return berth.NewTool(entry), nil
}

// InContainer returns an entry of "tools" with its calls in a container of the caller's
// choice. It returns an entry whose calls run outside containers unchanged.
func (r *Registry) InContainer(t berth.Tool, id berth.ContainerID) (berth.Tool, error) {
	if environment, err := r.environment(t); err != nil || environment == nil {
		return t, err
	}
	return r.kinds[t.Type()].Container.Settle(t, id)
}

// ContainerOf returns the container that an entry of "tools" refers to, or "".
func (r *Registry) ContainerOf(t berth.Tool) berth.ContainerID {
	environment, err := r.environment(t)
	if err != nil || environment == nil {
		return ""
	}
	return environment.ContainerID
}

// environment returns the environment that an entry of "tools" requests, or nil if its
// calls run outside containers.
func (r *Registry) environment(t berth.Tool) (*berth.ShellToolEnvironment, error) {
	k := r.Kind(t.Type())
	if k == nil || k.Container == nil {
		return nil, nil
	}
	return k.Container.Environment(t)
}

// Approvable returns the sorted names of the functions whose calls may need approval.
func (r *Registry) Approvable() []string {
	return r.names(func(c *Calls) bool { return c.Commands != nil })
}

// Runners returns the sorted names of the functions that run commands.
func (r *Registry) Runners() []string {
	return r.names(func(c *Calls) bool { return c.Script != nil })
}

// names returns the sorted function names of the kinds whose calls match.
func (r *Registry) names(match func(*Calls) bool) []string {
	var names []string
	if r == nil {
		return nil
	}
	for _, k := range r.kinds {
		if k.Calls != nil && match(k.Calls) {
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	return names
}

// FunctionName returns the name of the function under which a model sees a tool.
// namespace may be empty.
func FunctionName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "__" + name
}
