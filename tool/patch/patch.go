// Package patch is the apply_patch tool, with which a model changes files on the
// client's machine.
package patch

import (
	_ "embed"
	"encoding/json"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

//go:embed patch.md
var description string

//go:embed patch.json
var parameters json.RawMessage

// name is the function under which a model sees the tool.
const name = "apply_patch"

// Kind returns the apply_patch tool.
func Kind() tool.Kind {
	chosen := rule.Object(rule.Fields{"type": rule.AnyText})
	offered := rule.Object(rule.Fields{"type": rule.AnyText, "allowed_callers": rule.Callers})
	file := func(diff rule.Rule, required ...string) rule.Rule {
		return rule.OpenObject(rule.Fields{"type": rule.AnyText, "path": rule.Text(1, 0), "diff": diff}, required...)
	}
	return tool.Kind{
		Type: berth.ToolApplyPatch, Name: name,
		Rules: func(*tool.Registry) tool.Rules {
			return tool.Rules{Tool: offered, Found: offered, Choice: chosen, Subset: chosen,
				Call: rule.Call(rule.Fields{"operation": rule.ByType(map[string]rule.Rule{
					berth.PatchCreate: file(rule.Text(0, rule.MaxOutput), "path", "diff"),
					berth.PatchUpdate: file(rule.Text(0, rule.MaxOutput), "path", "diff"),
					berth.PatchDelete: file(rule.AnyText, "path"),
				})}, "operation"),
				Output: rule.Call(rule.Fields{
					"status": rule.OneOf("completed", "failed"), "output": rule.Text(0, rule.MaxOutput),
				}, "status"),
			}
		},
		Bind: func(tool.Context, berth.Tool) (tool.Tool, error) { return Tool{}, nil },
		Calls: &tool.Calls{Call: berth.ItemApplyPatchCall, Output: berth.ItemApplyPatchCallOutput,
			CallPrefix: berth.PrefixPatchCall, OutputPrefix: berth.PrefixPatchOutput,
			LowerCall: lowerCall, LowerOutput: lowerOutput, Draft: func() tool.Draft {
				return tool.TextDraft(draftFields)
			}},
	}
}

// draftFields returns the fields of a call whose diff is incomplete.
func draftFields(it berth.Item, text string) map[string]any {
	var call berth.ApplyPatchCall
	if it.Decode(&call) != nil || call.Operation.Diff == nil {
		return nil
	}
	call.Operation.Diff = &text
	return map[string]any{"operation": call.Operation}
}

// A Tool changes files on the client's machine, one with each call.
type Tool struct{ tool.Client }

var _ tool.Tool = Tool{}

// Spec implements tool.Tool.
func (Tool) Spec() tool.Spec {
	return tool.Spec{Function: tool.Function(name, description, parameters), Call: berth.ItemApplyPatchCall,
		Client: true}
}

// NewCall implements tool.Tool.
func (Tool) NewCall(callID string) tool.Call {
	return &patchCall{item: berth.ApplyPatchCall{ID: berth.NewID(berth.PrefixPatchCall), Type: berth.ItemApplyPatchCall,
		Status: berth.StatusInProgress, CallID: callID}}
}

func lowerCall(item berth.Item) (function, arguments string, err error) {
	var call struct {
		Operation json.RawMessage `json:"operation"`
	}
	err = item.Decode(&call)
	return name, string(call.Operation), err
}

// lowerOutput returns the status of an output and the client's message.
func lowerOutput(item berth.Item) (json.RawMessage, error) {
	var out berth.ApplyPatchCallOutput
	if err := item.Decode(&out); err != nil {
		return nil, err
	}
	text := string(out.Status)
	if out.Output != nil && *out.Output != "" {
		text += ": " + *out.Output
	}
	return berth.StringDelta(text), nil
}

// A patchCall is one call. The wire shows it once its operation and path are known. From
// then on the diff is streamed, which may precede them in the arguments.
type patchCall struct {
	tool.ClientCall
	item   berth.ApplyPatchCall
	open   bool // operation and path are known
	reader tool.ArgumentReader

	kind, path, diff argument
	sent             int // bytes of the diff
}

// An argument is the known part of a string among the arguments.
type argument struct {
	text  []byte
	begun bool
	ended bool
}

func (c *patchCall) Item() berth.Item {
	if !c.open {
		return berth.Item{}
	}
	return berth.NewItem(c.item)
}

func (c *patchCall) Write(arguments string) []berth.Event {
	fields := map[string]*argument{"type": &c.kind, "path": &c.path, "diff": &c.diff}
	for _, p := range c.reader.Write(arguments) {
		if a := fields[p.Key]; a != nil && p.Index < 0 && !a.ended {
			a.text = append(a.text, p.Text...)
			a.begun, a.ended = true, p.Ended
		}
	}
	c.open = c.open || c.setOperation()
	if !c.open || c.item.Operation.Diff == nil || c.sent == len(c.diff.text) {
		return nil
	}
	delta := berth.StringDelta(string(c.diff.text[c.sent:]))
	c.sent = len(c.diff.text)
	return []berth.Event{{Type: berth.EventPatchDiffDelta, ItemID: c.item.ID, Delta: delta}}
}

// setOperation sets the operation and the path of the item. It reports whether they are
// known and valid.
func (c *patchCall) setOperation() bool {
	if !c.kind.ended || !c.path.ended || len(c.path.text) == 0 {
		return false
	}
	op := berth.PatchOperation{Type: string(c.kind.text), Path: string(c.path.text)}
	switch op.Type {
	case berth.PatchCreate, berth.PatchUpdate:
		op.Diff = new(string)
	case berth.PatchDelete:
	default:
		return false
	}
	c.item.Operation = op
	return true
}

func (c *patchCall) Close(string) (events []berth.Event, item berth.Item, refusal string) {
	if !c.open {
		return nil, berth.Item{},
			"This call needs \"type\", which is create_file, update_file or delete_file, and \"path\". Nothing was changed."
	}
	c.item.Status = berth.StatusCompleted
	op := &c.item.Operation
	if op.Diff == nil {
		return nil, c.Item(), ""
	}
	diff := string(c.diff.text)
	op.Diff = &diff
	switch {
	case c.diff.begun && !c.diff.ended:
		refusal = "The arguments of this call end within \"diff\". Nothing was changed."
	case diff == "" && op.Type == berth.PatchUpdate:
		refusal = "An update_file needs a \"diff\". Nothing was changed."
	}
	if refusal != "" {
		c.item.Status = berth.StatusIncomplete
	}
	return []berth.Event{{Type: berth.EventPatchDiffDone, ItemID: c.item.ID, Diff: &diff}}, c.Item(), refusal
}
