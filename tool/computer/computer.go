// Package computer is the computer tools, with which a model uses a browser or a desktop of
// the client: computer, and the older computer_use_preview.
package computer

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

//go:embed computer.md
var text string

var description = template.Must(template.New("computer").Parse(text))

//go:embed action.json
var action json.RawMessage

// A Tool acts on the client's computer.
type Tool struct {
	tool.Client
	computer berth.ComputerTool
	native   *berth.Tool // for an upstream that has the tool itself, or nil
}

var _ tool.Tool = (*Tool)(nil)

// Spec implements tool.Tool. The function has the name of the tool's type.
func (t *Tool) Spec() tool.Spec {
	var about strings.Builder
	if err := description.Execute(&about, t.computer); err != nil {
		panic(err) // a template of strings and numbers, written to memory
	}
	shown := tool.Function(t.computer.Type, strings.TrimSpace(about.String()), parameters(t.computer.Type))
	shown.Native = t.native
	return tool.Spec{Function: shown, Call: berth.ItemComputerCall, Client: true}
}

// parameters returns the schema of the arguments: one action or a list of them.
func parameters(toolType string) json.RawMessage {
	field, acts := "actions", any(map[string]any{"type": "array", "items": action, "minItems": 1})
	if toolType == berth.ToolComputerPreview {
		field, acts = "action", action
	}
	raw, err := json.Marshal(map[string]any{
		"type": "object",
		"properties": map[string]any{field: acts, "safety_checks": map[string]any{
			"type": "array", "items": map[string]any{"type": "string"}, "description": "Reasons why the user should agree first; usually none",
		}},
		"required": []string{field}, "additionalProperties": false,
	})
	if err != nil {
		panic(err) // the schema is embedded
	}
	return raw
}

// NewCall implements tool.Tool.
func (t *Tool) NewCall(callID string) tool.Call {
	return &call{tool: t.computer, item: berth.ComputerCall{ID: berth.NewID(berth.PrefixComputerCall), Type: berth.ItemComputerCall,
		Status: berth.StatusInProgress, CallID: callID, PendingSafetyChecks: []berth.SafetyCheck{}}}
}

// arguments are the arguments of the function.
type arguments struct {
	Action       *written  `json:"action,omitempty"`
	Actions      []written `json:"actions,omitempty"`
	SafetyChecks []string  `json:"safety_checks,omitempty"`
}

// A call is one call. The wire shows it when it is complete.
type call struct {
	tool.ClientCall
	tool  berth.ComputerTool
	item  berth.ComputerCall
	valid bool
}

func (c *call) Item() berth.Item {
	if !c.valid {
		return berth.Item{}
	}
	return berth.NewItem(c.item)
}

func (c *call) Write(string) []berth.Event { return nil }

func (c *call) Close(text string) ([]berth.Event, berth.Item, string) {
	var a arguments
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return nil, berth.Item{}, fmt.Sprintf("The arguments of this call are not valid: %v. Nothing was done.", err)
	}
	if a.Action != nil {
		a.Actions = slices.Insert(a.Actions, 0, *a.Action)
	}
	preview := c.tool.Type == berth.ToolComputerPreview
	switch {
	case len(a.Actions) == 0:
		return nil, berth.Item{}, "This call has no action. Nothing was done."
	case preview && len(a.Actions) > 1:
		return nil, berth.Item{}, "This call has more than one action. Give one action with each call. Nothing was done."
	}
	var actions []berth.ComputerAction
	for i, w := range a.Actions {
		act, err := w.action(c.tool)
		if err != nil {
			return nil, berth.Item{}, fmt.Sprintf("Action %d of this call is not valid: %v. Nothing was done.", i+1, err)
		}
		actions = append(actions, act)
	}
	if preview {
		c.item.Action = &actions[0]
	} else {
		c.item.Actions = actions
	}
	for _, reason := range a.SafetyChecks {
		code := "model_request"
		c.item.PendingSafetyChecks = append(c.item.PendingSafetyChecks, berth.SafetyCheck{ID: berth.NewID(berth.PrefixSafetyCheck), Code: &code, Message: &reason})
	}
	c.valid = true
	closed := c.item
	closed.Status = berth.StatusCompleted
	return nil, berth.NewItem(closed), ""
}
