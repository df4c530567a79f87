package tool

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/berth-run/berth"
)

//go:embed local_shell.md
var localShellDescription string

//go:embed local_shell.json
var localShellParameters json.RawMessage

// LocalShellName is the function under which a model sees the local shell.
const LocalShellName = "local_shell"

// A LocalShell runs one command at a time, on the client's machine.
type LocalShell struct{ client }

var _ Tool = LocalShell{}

func (LocalShell) Spec() Spec {
	return Spec{Function: builtIn(LocalShellName, localShellDescription, localShellParameters), Call: berth.ItemLocalShellCall, Client: true}
}

func (LocalShell) NewCall(callID string) Call {
	return &localShellCall{item: berth.LocalShellCall{ID: berth.NewID(berth.PrefixLocalShellCall), Type: berth.ItemLocalShellCall,
		Status: berth.StatusInProgress, CallID: callID, Action: berth.LocalShellAction{Type: "exec", Command: []string{}, Env: map[string]string{}}}}
}

func lowerLocalShellCall(item berth.Item) (name, arguments string, err error) {
	var call berth.LocalShellCall
	if err := item.Decode(&call); err != nil {
		return "", "", err
	}
	a := call.Action
	raw, err := json.Marshal(localShellArguments{Command: a.Command, Env: a.Env, TimeoutMS: a.TimeoutMS, User: a.User, WorkingDirectory: a.WorkingDirectory})
	return LocalShellName, string(raw), err
}

// localShellArguments are what the model writes.
type localShellArguments struct {
	Command          words             `json:"command"`
	Env              map[string]string `json:"env,omitempty"`
	TimeoutMS        *int              `json:"timeout_ms,omitempty"`
	User             *string           `json:"user,omitempty"`
	WorkingDirectory *string           `json:"working_directory,omitempty"`
}

// words accepts a command line as well, which models are fond of.
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
	clientCall
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
	var a localShellArguments
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
