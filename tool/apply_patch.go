package tool

import (
	_ "embed"
	"encoding/json"

	"github.com/berth-run/berth"
)

//go:embed apply_patch.md
var applyPatchDescription string

//go:embed apply_patch.json
var applyPatchParameters json.RawMessage

// ApplyPatchName is the function under which a model sees the apply_patch tool.
const ApplyPatchName = "apply_patch"

// An ApplyPatch changes files on the client's machine, one with each call.
type ApplyPatch struct{ client }

var _ Tool = ApplyPatch{}

func (ApplyPatch) Spec() Spec {
	return Spec{Function: builtIn(ApplyPatchName, applyPatchDescription, applyPatchParameters), Call: berth.ItemApplyPatchCall, Client: true}
}

func (ApplyPatch) NewCall(callID string) Call {
	return &patchCall{item: berth.ApplyPatchCall{ID: berth.NewID(berth.PrefixPatchCall), Type: berth.ItemApplyPatchCall,
		Status: berth.StatusInProgress, CallID: callID}}
}

func lowerPatchCall(item berth.Item) (name, arguments string, err error) {
	var call struct {
		Operation json.RawMessage `json:"operation"`
	}
	err = item.Decode(&call)
	return ApplyPatchName, string(call.Operation), err
}

// lowerPatchOutput shows the model how a call ended, and what the client says of it.
func lowerPatchOutput(item berth.Item) (json.RawMessage, error) {
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

// A patchCall is one call. The wire shows it once its operation and path are
// known; the diff, which may come before them, is told from then on.
type patchCall struct {
	clientCall
	item   berth.ApplyPatchCall
	open   bool // operation and path are known
	reader argumentReader

	kind, path, diff argument
	told             int // bytes of the diff
}

// An argument is what is known of a string among the arguments.
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
	for _, p := range c.reader.write(arguments) {
		if a := fields[p.key]; a != nil && p.index < 0 && !a.ended {
			a.text = append(a.text, p.text...)
			a.begun, a.ended = true, p.ended
		}
	}
	c.open = c.open || c.begin()
	if !c.open || c.item.Operation.Diff == nil || c.told == len(c.diff.text) {
		return nil
	}
	delta := berth.StringDelta(string(c.diff.text[c.told:]))
	c.told = len(c.diff.text)
	return []berth.Event{{Type: berth.EventPatchDiffDelta, ItemID: c.item.ID, Delta: delta}}
}

// begin fills in operation and path, and reports whether they are known and good.
func (c *patchCall) begin() bool {
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
		return nil, berth.Item{}, "This call needs \"type\", which is create_file, update_file or delete_file, and \"path\". Nothing was changed."
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
