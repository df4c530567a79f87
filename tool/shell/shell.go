// Package shell is the shell tool, with which a model runs commands in a container or on
// the client's machine.
package shell

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"text/template"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/tool"
)

//go:embed shell.md
var text string

var description = template.Must(template.New("shell").Parse(text))

//go:embed session.md
var sessionText string

// session describes the container to a model that has a shell tool of its vendor.
var session = template.Must(template.New("session").Parse(sessionText))

//go:embed shell.json
var parameters json.RawMessage

// name is the function under which a model sees the tool.
const name = "shell"

// Limits of a shell call.
const (
	maxCommands     = 64
	maxCommandBytes = 1 << 20
)

// Containers runs the shell calls of responses.
type Containers interface {
	// Shell returns an Execer for the calls of the caller's response in a container. It
	// does not block. If the container has ended, the call reports that.
	Shell(caller berth.Caller, id berth.ContainerID) guest.Execer
	// Skills returns the skills in a container that runs or starts. It does not block.
	Skills(p berth.ProjectID, id berth.ContainerID) []berth.ContainerSkill
	// Contents returns the programs installed in a container, or nil if they are not known. It does
	// not block.
	Contents(p berth.ProjectID, id berth.ContainerID) *berth.TemplateContents
}

// Limits are the default limits of a call and the maximum limits that a call may set.
type Limits struct {
	Timeout    time.Duration // of each command; default 10 minutes
	MaxTimeout time.Duration // default 1 hour
	Output     int           // characters of each command; default 32,768
	MaxOutput  int           // default 1,048,576
}

// A Tool is the shell tool of one response.
type Tool struct {
	environment *berth.ShellEnvironment
	exec        guest.Execer // nil: the client runs the calls
	limits      Limits
	skills      []berth.LocalSkill // in the environment
	contents    *berth.TemplateContents
}

var _ tool.Tool = (*Tool)(nil)

// New returns the shell tool for an environment as the response shows it. With a nil
// Execer the client runs its calls.
func New(environment *berth.ShellEnvironment, exec guest.Execer, limits Limits) *Tool {
	orDefault(&limits.Timeout, 10*time.Minute)
	orDefault(&limits.MaxTimeout, time.Hour)
	orDefault(&limits.Output, 32<<10)
	orDefault(&limits.MaxOutput, 1<<20)
	return &Tool{environment: environment, exec: exec, limits: limits}
}

func orDefault[T int | time.Duration](p *T, v T) {
	if *p <= 0 {
		*p = v
	}
}

// Spec implements tool.Tool.
func (s *Tool) Spec() tool.Spec {
	shown := tool.Function(name, describe(description, s.contents, s.skills), parameters)
	if s.exec != nil {
		shown.Hosted = &berth.HostedFunction{Type: berth.ToolShell, About: func() string {
			return describe(session, s.contents, s.skills)
		}}
	}
	return tool.Spec{Function: shown, Call: berth.ItemShellCall, Client: s.exec == nil}
}

// NewCall implements tool.Tool.
func (s *Tool) NewCall(callID string) tool.Call {
	return &shellCall{tool: s, item: berth.ShellCall{
		ID: berth.NewID(berth.PrefixShellCall), Type: berth.ItemShellCall, Status: berth.StatusInProgress,
		Action: berth.ShellAction{Commands: []string{}}, CallID: callID, Environment: s.environment,
	}}
}

// ResumeCall implements tool.Tool.
func (s *Tool) ResumeCall(item, output berth.Item, stored []berth.Event) (tool.Call, error) {
	c := &shellCall{tool: s}
	if err := item.Decode(&c.item); err != nil {
		return nil, err
	}
	if c.item.Berth != nil {
		c.invalid = c.item.Berth.Invalid
	}
	if c.item.Status != berth.StatusCompleted && c.invalid == "" {
		return nil, nil
	}
	if !output.IsZero() {
		c.resumed = &resumedOutput{outputID: output.ID(), events: stored}
	}
	return c, nil
}

// lowerCall returns a shell call with the arguments that the model wrote.
func lowerCall(item berth.Item) (function, arguments string, err error) {
	var call struct {
		Action json.RawMessage `json:"action"`
	}
	err = item.Decode(&call)
	return name, string(call.Action), err
}

// lowerOutput returns the output of a call as a string of JSON:
// {"output":[{"outcome":…,"stderr":…,"stdout":…}]}.
func lowerOutput(item berth.Item) (json.RawMessage, error) {
	var out struct {
		Output []berth.ShellContent `json:"output"`
	}
	if err := item.Decode(&out); err != nil {
		return nil, err
	}
	text, err := json.Marshal(out)
	return berth.StringDelta(string(text)), err
}

// A shellCall is one call, from the first character of its arguments to the end
// of its last command.
type shellCall struct {
	tool *Tool
	item berth.ShellCall

	reader  commandReader
	invalid string         // why the call cannot be run, for the model
	resumed *resumedOutput // the output that an earlier process stored
}

func (c *shellCall) Item() berth.Item { return berth.NewItem(c.item) }

func (c *shellCall) Write(arguments string) []berth.Event {
	return c.reader.write(arguments)
}

func (c *shellCall) Close(arguments string) (events []berth.Event, item berth.Item, refusal string) {
	var action struct {
		Commands        commands `json:"commands"`
		MaxOutputLength *int     `json:"max_output_length"`
		TimeoutMS       *int     `json:"timeout_ms"`
	}
	c.item.Status = berth.StatusCompleted
	if err := json.Unmarshal([]byte(arguments), &action); err != nil {
		c.item.Status = berth.StatusIncomplete
		c.invalid = fmt.Sprintf("The arguments of this call are not valid: %v. Nothing was run.", err)
		events := c.reader.abandon()
		c.item.Action.Commands = append(c.item.Action.Commands, c.reader.commands...)
		c.markInvalid()
		return events, c.Item(), c.refusal()
	}
	c.item.Action = berth.ShellAction{Commands: action.Commands, MaxOutputLength: action.MaxOutputLength,
		TimeoutMS: action.TimeoutMS}
	if c.item.Action.Commands == nil {
		c.item.Action.Commands = []string{}
	}
	if c.invalid = c.check(); c.invalid != "" {
		c.item.Status = berth.StatusIncomplete
		c.markInvalid()
	}
	return c.unread(), c.Item(), c.refusal()
}

// markInvalid records in the item of a hosted call why it cannot run. A server that
// resumes the response thereby distinguishes the call from one that the model did not
// finish, which is incomplete as well.
func (c *shellCall) markInvalid() {
	if c.tool.exec != nil {
		c.item.Berth = &berth.CallBerth{Invalid: c.invalid}
	}
}

// refusal returns the reason why a call cannot be passed to the client, or "". For a call
// on the server it returns "", because Run reports the reason.
func (c *shellCall) refusal() string {
	if c.tool.exec == nil {
		return c.invalid
	}
	return ""
}

// commands also accepts a single string, which models often write.
type commands []string

func (c *commands) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*c = commands{""}
		return json.Unmarshal(b, &(*c)[0])
	}
	return json.Unmarshal(b, (*[]string)(c))
}

// unread returns the events of the commands that the reader did not find.
func (c *shellCall) unread() []berth.Event {
	var events []berth.Event
	for i := len(c.reader.commands); i < len(c.item.Action.Commands); i++ {
		command, empty := c.item.Action.Commands[i], ""
		events = append(events,
			berth.Event{Type: berth.EventShellCommandAdded, CommandIndex: &i, Command: &empty},
			berth.Event{Type: berth.EventShellCommandDelta, CommandIndex: &i, Delta: berth.StringDelta(command)},
			berth.Event{Type: berth.EventShellCommandDone, CommandIndex: &i, Command: &command})
	}
	return events
}

// check returns a message to the model about an invalid call, or "".
func (c *shellCall) check() string {
	a := c.item.Action
	switch n := len(a.Commands); {
	case n == 0:
		return "This call has no commands. Give at least one in \"commands\"."
	case n > maxCommands:
		return fmt.Sprintf("This call has %d commands; %d are allowed at once. Nothing was run.", n, maxCommands)
	}
	for _, command := range a.Commands {
		if len(command) > maxCommandBytes {
			return fmt.Sprintf(
				"A command has %d bytes; %d are allowed. Nothing was run. Write long input to a file in several steps.",
				len(command), maxCommandBytes)
		}
	}
	if a.TimeoutMS != nil && *a.TimeoutMS <= 0 {
		return "timeout_ms must be positive. Nothing was run."
	}
	if a.MaxOutputLength != nil && *a.MaxOutputLength < 0 {
		return "max_output_length must not be negative. Nothing was run."
	}
	return ""
}

func (c *shellCall) timeout() time.Duration {
	if ms := c.item.Action.TimeoutMS; ms != nil {
		return time.Duration(min(int64(*ms), c.tool.limits.MaxTimeout.Milliseconds())) * time.Millisecond
	}
	return c.tool.limits.Timeout
}

func (c *shellCall) outputLimit() int {
	if n := c.item.Action.MaxOutputLength; n != nil {
		return min(*n, c.tool.limits.MaxOutput)
	}
	return c.tool.limits.Output
}
