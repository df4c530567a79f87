package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"iter"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

//go:embed shell.md
var shellDescription string

//go:embed shell.json
var shellParameters json.RawMessage

// ShellName is the function under which a model sees the shell tool.
const ShellName = "shell"

// Bounds on a shell call, whoever asks for it.
const (
	maxCommands     = 64
	maxCommandBytes = 1 << 20
)

// An Execer runs shell calls in one container; *container.Service makes them.
type Execer interface {
	// Shell runs the call, or takes it up again if its id is known, and yields
	// what its commands do until all have ended.
	Shell(ctx context.Context, call guest.ShellCall) iter.Seq2[guest.ShellEvent, error]
	// Cancel ends the commands of a call with all that they started.
	Cancel(ctx context.Context, callID string) error
	// Forget lets the container drop what it kept of a call that has been told.
	Forget(ctx context.Context, callID string)
}

// ShellLimits are the bounds of a call that names none, and the bounds of those
// that it may name.
type ShellLimits struct {
	Timeout    time.Duration // of each command; default 10 minutes
	MaxTimeout time.Duration // default 1 hour
	Output     int           // characters of each command; default 32,768
	MaxOutput  int           // default 1,048,576
}

// A Shell is the shell tool of one response.
type Shell struct {
	environment *berth.ShellEnvironment
	exec        Execer // nil: the client runs the calls
	limits      ShellLimits
}

var _ Tool = (*Shell)(nil)

// NewShell returns the shell tool for an environment as the response shows it.
// With a nil Execer its calls are handed to the client.
func NewShell(environment *berth.ShellEnvironment, exec Execer, limits ShellLimits) *Shell {
	orDefault(&limits.Timeout, 10*time.Minute)
	orDefault(&limits.MaxTimeout, time.Hour)
	orDefault(&limits.Output, 32<<10)
	orDefault(&limits.MaxOutput, 1<<20)
	return &Shell{environment: environment, exec: exec, limits: limits}
}

func orDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func (s *Shell) Spec() Spec {
	return Spec{Function: builtIn(ShellName, shellDescription, shellParameters), Call: berth.ItemShellCall, Client: s.exec == nil}
}

func (s *Shell) NewCall(callID string) Call {
	return &shellCall{tool: s, item: berth.ShellCall{
		ID: berth.NewID(berth.PrefixShellCall), Type: berth.ItemShellCall, Status: berth.StatusInProgress,
		Action: berth.ShellAction{Commands: []string{}}, CallID: callID, Environment: s.environment,
	}}
}

func (s *Shell) ResumeCall(item, output berth.Item, told []berth.Event) (Call, error) {
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
		c.resumed = &resumed{outputID: output.ID(), told: told}
	}
	return c, nil
}

// inContainer reports whether a shell call names a container.
func inContainer(item berth.Item) bool {
	var call struct {
		Environment *berth.ShellEnvironment `json:"environment"`
	}
	return item.Decode(&call) == nil && call.Environment != nil && call.Environment.Type == berth.EnvironmentReference
}

// lowerShellCall shows the model a shell call as the arguments that it wrote.
func lowerShellCall(item berth.Item) (name, arguments string, err error) {
	var call struct {
		Action json.RawMessage `json:"action"`
	}
	err = item.Decode(&call)
	return ShellName, string(call.Action), err
}

// lowerShellOutput shows the model what a call printed, as JSON:
// {"output":[{"outcome":…,"stderr":…,"stdout":…}]}.
func lowerShellOutput(item berth.Item) (json.RawMessage, error) {
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
	tool *Shell
	item berth.ShellCall

	reader  commandReader
	invalid string   // why the call cannot be run; told to the model
	resumed *resumed // what a former process told of the output
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
	c.item.Action = berth.ShellAction{Commands: action.Commands, MaxOutputLength: action.MaxOutputLength, TimeoutMS: action.TimeoutMS}
	if c.item.Action.Commands == nil {
		c.item.Action.Commands = []string{}
	}
	if c.invalid = c.check(); c.invalid != "" {
		c.item.Status = berth.StatusIncomplete
		c.markInvalid()
	}
	return c.untold(), c.Item(), c.refusal()
}

// markInvalid records in the item of a hosted call why it cannot be run. Without that
// a server that resumes the response could not tell it from a call that the model did
// not finish, which is incomplete as well.
func (c *shellCall) markInvalid() {
	if c.tool.exec != nil {
		c.item.Berth = &berth.ShellCallBerth{Invalid: c.invalid}
	}
}

// refusal says what is wrong with a call that the client cannot be given. On the
// server Run tells the model.
func (c *shellCall) refusal() string {
	if c.tool.exec == nil {
		return c.invalid
	}
	return ""
}

// commands accepts a single string as well, which models are fond of.
type commands []string

func (c *commands) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*c = commands{""}
		return json.Unmarshal(b, &(*c)[0])
	}
	return json.Unmarshal(b, (*[]string)(c))
}

// untold returns the events of commands that the reader could not see coming.
func (c *shellCall) untold() []berth.Event {
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

// check says what is wrong with the call, in words for the model; "" is nothing.
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
			return fmt.Sprintf("A command has %d bytes; %d are allowed. Nothing was run. Write long input to a file in several steps.", len(command), maxCommandBytes)
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
