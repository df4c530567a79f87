// Package localshell is the local_shell tool, with which a model runs commands on the
// client's machine.
package localshell

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/tool"
)

//go:embed localshell.md
var description string

//go:embed localshell.json
var parameters json.RawMessage

// name is the function under which a model sees the tool.
const name = "local_shell"

// Kind returns the local_shell tool.
func Kind() tool.Kind {
	offered := rule.Object(rule.Fields{"type": rule.AnyText})
	milliseconds := rule.Integer(0, math.MaxInt32)
	return tool.Kind{
		Type: berth.ToolLocalShell, Name: name,
		Rules: func(*tool.Registry) tool.Rules {
			return tool.Rules{Tool: offered, Found: offered, Choice: offered, Subset: offered,
				Call: rule.Call(rule.Fields{
					"action": rule.ByType(map[string]rule.Rule{"exec": rule.OpenObject(rule.Fields{
						"type": rule.AnyText, "command": rule.List(rule.AnyText, 0), "env": environment,
						"timeout_ms": milliseconds, "user": rule.AnyText, "working_directory": rule.AnyText,
					}, "command")}),
				}, "action"),
				Output: outputRule}
		},
		Bind: func(tool.Context, berth.Tool) (tool.Tool, error) { return Tool{}, nil },
		Calls: &tool.Calls{Call: berth.ItemLocalShellCall, Output: berth.ItemLocalShellCallOutput,
			CallPrefix: berth.PrefixLocalShellCall, OutputPrefix: berth.PrefixLocalShellOut,
			LowerCall: lowerCall, LowerOutput: tool.SameOutput, Fill: fill},
	}
}

// outputRule accepts an output that names its call by "id", as in OpenAI's document and
// the types of its clients, or by "call_id", as in their examples.
func outputRule(at string, v any) error {
	required := []string{"output"}
	if v.(map[string]any)["id"] == nil {
		required = append(required, "call_id")
	}
	return rule.Item(rule.Fields{"output": rule.Text(0, rule.MaxOutput)}, required...)(at, v)
}

// fill moves the id of an output's call to "call_id", and gives the output its own id.
func fill(it berth.Item, fields map[string]any) error {
	if it.Type() == berth.ItemLocalShellCallOutput && it.CallID() == "" {
		fields["call_id"], fields["id"] = it.ID(), berth.NewID(berth.PrefixLocalShellOut)
	}
	return nil
}

// environment accepts an object of variables with their values.
func environment(at string, v any) error {
	vars, ok := v.(map[string]any)
	if !ok {
		return rule.WrongType(at, "an object", v)
	}
	for _, variable := range slices.Sorted(maps.Keys(vars)) {
		if err := rule.AnyText(rule.Join(at, variable), vars[variable]); err != nil {
			return err
		}
	}
	return nil
}

// A Tool runs one command with each call, on the client's machine.
type Tool struct{ tool.Client }

var _ tool.Tool = Tool{}

// Spec implements tool.Tool.
func (Tool) Spec() tool.Spec {
	return tool.Spec{Function: tool.Function(name, description, parameters), Call: berth.ItemLocalShellCall,
		Client: true}
}

// NewCall implements tool.Tool.
func (Tool) NewCall(callID string) tool.Call {
	return &localShellCall{item: berth.LocalShellCall{ID: berth.NewID(berth.PrefixLocalShellCall),
		Type:   berth.ItemLocalShellCall,
		Status: berth.StatusInProgress, CallID: callID, Action: berth.LocalShellAction{Type: "exec",
			Command: []string{}, Env: map[string]string{}}}}
}

func lowerCall(item berth.Item) (function, arguments string, err error) {
	var call berth.LocalShellCall
	if err := item.Decode(&call); err != nil {
		return "", "", err
	}
	a := call.Action
	raw, err := json.Marshal(shellArguments{Command: a.Command, Env: a.Env, TimeoutMS: a.TimeoutMS, User: a.User,
		WorkingDirectory: a.WorkingDirectory})
	return name, string(raw), err
}

// shellArguments are the arguments of the function.
type shellArguments struct {
	Command          words             `json:"command"`
	Env              map[string]string `json:"env,omitempty"`
	TimeoutMS        *int              `json:"timeout_ms,omitempty"`
	User             *string           `json:"user,omitempty"`
	WorkingDirectory *string           `json:"working_directory,omitempty"`
}

// words also accepts a command line in one string, which models often write.
type words []string

func (w *words) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*w = words{"bash", "-lc", ""}
		return json.Unmarshal(b, &(*w)[2])
	}
	return json.Unmarshal(b, (*[]string)(w))
}

// A localShellCall is one call. The wire shows it when it is complete.
type localShellCall struct {
	tool.ClientCall
	item  berth.LocalShellCall
	valid bool
}

func (c *localShellCall) Item() berth.Item {
	if !c.valid {
		return berth.Item{}
	}
	return berth.NewItem(c.item)
}

func (c *localShellCall) Write(string) []berth.Event { return nil }

func (c *localShellCall) Close(arguments string) ([]berth.Event, berth.Item, string) {
	var a shellArguments
	err := json.Unmarshal([]byte(arguments), &a)
	switch {
	case err != nil:
		return nil, berth.Item{}, fmt.Sprintf("The arguments of this call are not valid: %v. Nothing was run.", err)
	case len(a.Command) == 0 || a.Command[0] == "":
		return nil, berth.Item{}, "This call has no command. Give the program and its arguments in \"command\"."
	case a.TimeoutMS != nil && *a.TimeoutMS <= 0:
		return nil, berth.Item{}, "timeout_ms must be positive. Nothing was run."
	}
	c.valid = true
	closed := c.item
	closed.Status = berth.StatusCompleted
	closed.Action.Command, closed.Action.TimeoutMS = a.Command, a.TimeoutMS
	closed.Action.User, closed.Action.WorkingDirectory = a.User, a.WorkingDirectory
	if a.Env != nil {
		closed.Action.Env = a.Env
	}
	return nil, berth.NewItem(closed), ""
}
