package tool

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/berth-run/berth"
)

// A Registry holds the kinds of tools that a server has. It does not change and is
// safe for concurrent use. A nil Registry has none.
type Registry struct {
	kinds   map[string]*Kind // by type
	calls   map[berth.ItemType]*Calls
	outputs map[berth.ItemType]*Calls
	rules   map[string]Rules // by type
}

// NewRegistry returns a registry of these kinds. It panics if two have the same type,
// or the same type of items.
func NewRegistry(kinds ...Kind) *Registry {
	r := &Registry{kinds: map[string]*Kind{}, calls: map[berth.ItemType]*Calls{}, outputs: map[berth.ItemType]*Calls{}, rules: map[string]Rules{}}
	for _, k := range kinds {
		if r.kinds[k.Type] != nil {
			panic(fmt.Sprintf("tool: two kinds of type %q", k.Type))
		}
		r.kinds[k.Type] = &k
		c := k.Calls
		if c == nil {
			continue
		}
		for _, t := range []berth.ItemType{c.Call, c.Output} {
			if r.calls[t] != nil || r.outputs[t] != nil {
				panic(fmt.Sprintf("tool: two kinds with items of type %q", t))
			}
		}
		r.calls[c.Call], r.outputs[c.Output] = c, c
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

// CallsOf returns what describes the calls whose call or output an item is, or nil.
func (r *Registry) CallsOf(it berth.Item) *Calls { return r.ofType(it.Type()) }

func (r *Registry) ofType(t berth.ItemType) *Calls {
	if c := r.ofCall(t); c != nil {
		return c
	}
	return r.ofOutput(t)
}

func (r *Registry) ofCall(t berth.ItemType) *Calls {
	if r == nil {
		return nil
	}
	return r.calls[t]
}

func (r *Registry) ofOutput(t berth.ItemType) *Calls {
	if r == nil {
		return nil
	}
	return r.outputs[t]
}

// IsCall reports whether an item is a call.
func (r *Registry) IsCall(it berth.Item) bool { return r.ofCall(it.Type()) != nil }

// IsOutput reports whether an item is the output of a call.
func (r *Registry) IsOutput(it berth.Item) bool { return r.ofOutput(it.Type()) != nil }

// IsHosted reports whether an item is a call that the server answers.
func (r *Registry) IsHosted(it berth.Item) bool {
	c := r.ofCall(it.Type())
	return c != nil && c.Hosted != nil && c.Hosted(it)
}

// Outcome returns how a call ended whose output an item is. Items that are no outputs
// are OK.
func (r *Registry) Outcome(it berth.Item) Outcome {
	c := r.ofOutput(it.Type())
	if c == nil || c.Outcome == nil {
		return OK
	}
	return c.Outcome(it)
}

// Name returns the function under which a model sees the tool that was called.
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

// Offered returns the tools that an item adds to those of its request: the output of
// a search, or additional_tools.
func (r *Registry) Offered(it berth.Item) ([]berth.Tool, error) {
	if it.Type() == berth.ItemAdditionalTools {
		return ToolsOf(it)
	}
	if c := r.ofOutput(it.Type()); c != nil && c.Offers != nil {
		return c.Offers(it)
	}
	return nil, nil
}

// ToolsOf returns the "tools" of an item.
func ToolsOf(it berth.Item) ([]berth.Tool, error) {
	var body struct {
		Tools []berth.Tool `json:"tools"`
	}
	err := it.Decode(&body)
	return body.Tools, err
}

// Lower turns the items of a call into the function_call and function_call_output
// that a model sees of them. It returns other items unchanged.
func (r *Registry) Lower(item berth.Item) (berth.Item, error) {
	if c := r.ofCall(item.Type()); c != nil {
		name, arguments, err := c.LowerCall(item)
		if err != nil {
			return berth.Item{}, err
		}
		return berth.NewItem(berth.FunctionCall{ID: item.ID(), Type: berth.ItemFunctionCall,
			Status: berth.StatusCompleted, Name: name, CallID: item.CallID(), Arguments: arguments}), nil
	}
	if c := r.ofOutput(item.Type()); c != nil {
		output, err := c.LowerOutput(item)
		if err != nil {
			return berth.Item{}, err
		}
		return berth.NewItem(berth.FunctionCallOutput{ID: item.ID(), Type: berth.ItemFunctionCallOutput,
			Status: berth.StatusCompleted, CallID: item.CallID(), Output: output}), nil
	}
	return item, nil
}

// SameOutput is the LowerOutput of outputs that are a string, or a list of contents,
// on the wire.
func SameOutput(item berth.Item) (json.RawMessage, error) {
	var out struct {
		Output json.RawMessage `json:"output"`
	}
	err := item.Decode(&out)
	return out.Output, err
}

// IDPrefix returns the prefix of the ids of a type of item, or "" if no tool has such
// items.
func (r *Registry) IDPrefix(t berth.ItemType) string {
	if c := r.ofCall(t); c != nil {
		return c.CallPrefix
	}
	if c := r.ofOutput(t); c != nil {
		return c.OutputPrefix
	}
	return ""
}

// Approvable returns the functions whose calls may need approval, in order.
func (r *Registry) Approvable() []string {
	var names []string
	if r == nil {
		return nil
	}
	for _, k := range r.kinds {
		if k.Calls != nil && k.Calls.Commands != nil {
			names = append(names, k.Name)
		}
	}
	slices.Sort(names)
	return names
}

// FunctionName is the function under which a model sees a tool in a namespace,
// which may be empty.
func FunctionName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "__" + name
}
