package mcp

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/command"
)

// Limits of commands, in seconds.
const (
	defaultTimeout = 600
	maxTimeout     = 24 * 60 * 60
	defaultWait    = 50 // clients give up after a minute, if nobody has told them otherwise
	maxWait        = 600
)

// maxCommand bounds the text of a command in bytes.
const maxCommand = 1 << 20

// stopGrace bounds the time to stop a command.
const stopGrace = 10 * time.Second

const runText = `Runs a shell command in the container and returns what it prints.

The working directory and exported variables carry over to the next command; the first working directory is /mnt/data.
If the command still runs after wait_seconds, or with background, the answer has its command_id: use wait for the rest, or stop.
Of long output the start and the end are returned, and the name of a file that has all of it.`

const codeText = `Runs code in a Jupyter kernel of the container, Python by default, and returns its output, the value of the last expression, and images that it shows.

Variables stay for the next call. Code that still runs after wait_seconds continues: use wait with the command_id.`

const waitText = `Waits for a command that run or code has left running, and returns its status and output so far. It also returns the result of a command that has ended, also after the connection was lost.`

const stopText = `Ends a command that runs, with everything that it started, and returns its output.`

// addCommandTools adds the tools for commands.
func (d *Door) addCommandTools() {
	add(d, inWorld(changes("run", "Run a command", runText, false)), run)
	add(d, inWorld(changes("code", "Run code", codeText, false)), code)
	add(d, readOnly("wait", "Wait for a command", waitText), wait)
	add(d, changes("stop", "Stop a command", stopText, false), stop)
}

// The argument that names a container, of all tools that use one.
type inContainer struct {
	Container string `json:"container,omitempty" jsonschema:"Name or id of the container. Default: the container of this connection."`
}

type runInput struct {
	Command string `json:"command" jsonschema:"Shell command or script."`
	Dir     string `json:"cwd,omitempty" jsonschema:"Directory to change to first."`
	Timeout int    `json:"timeout_seconds,omitempty" jsonschema:"End the command after this time. Default 600."`
	Wait    int    `json:"wait_seconds,omitempty" jsonschema:"Return after this time even if the command still runs. Default 50."`

	Background bool `json:"background,omitempty" jsonschema:"Return immediately, without output."`
	inContainer
}

// A commandOutput is the state of a command.
type commandOutput struct {
	CommandID string `json:"command_id" jsonschema:"For wait and stop."`
	Container string `json:"container" jsonschema:"Id of the container."`
	Status    string `json:"status" jsonschema:"running, exited or timeout."`
	ExitCode  *int   `json:"exit_code,omitempty" jsonschema:"Of an exited command; 128 + n if signal n ended it."`
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated,omitempty" jsonschema:"The middle of the output is left out."`

	Files []string `json:"output_files,omitempty" jsonschema:"Files in the container with the whole output."`
}

func run(ctx context.Context, c *call, in runInput) ([]sdk.Content, commandOutput, error) {
	switch {
	case strings.TrimSpace(in.Command) == "":
		return nil, commandOutput{}, berth.Invalid("command", "The command is empty.")
	case len(in.Command)+len(in.Dir) > maxCommand:
		return nil, commandOutput{}, berth.Invalid("command",
			"The command is longer than %d bytes. Write long data to a file with write.", maxCommand)
	case strings.ContainsRune(in.Command+in.Dir, 0):
		return nil, commandOutput{}, berth.Invalid("command", "The command contains a NUL byte.")
	}
	script := in.Command
	if in.Dir != "" {
		script = "cd -- " + quoted(in.Dir) + " || exit\n" + script
	}
	return c.start(ctx, in.Container, command.Request{Text: script, Timeout: seconds(in.Timeout, defaultTimeout,
		maxTimeout)}, in.Wait, in.Background)
}

// quoted returns a word of the shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

type codeInput struct {
	Code    string `json:"code"`
	Kernel  string `json:"kernel,omitempty" jsonschema:"Name of the Jupyter kernel. Default python3."`
	Timeout int    `json:"timeout_seconds,omitempty" jsonschema:"Interrupt the code after this time. Default 600."`
	Wait    int    `json:"wait_seconds,omitempty" jsonschema:"Return after this time even if the code still runs. Default 50."`
	inContainer
}

var kernelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func code(ctx context.Context, c *call, in codeInput) ([]sdk.Content, commandOutput, error) {
	kernel := cmp.Or(in.Kernel, "python3")
	switch {
	case strings.TrimSpace(in.Code) == "":
		return nil, commandOutput{}, berth.Invalid("code", "The code is empty.")
	case len(in.Code) > maxCommand:
		return nil, commandOutput{}, berth.Invalid("code",
			"The code is longer than %d bytes. Write long data to a file with write.", maxCommand)
	case strings.ContainsRune(in.Code, 0):
		return nil, commandOutput{}, berth.Invalid("code", "The code contains a NUL byte.")
	case !kernelName.MatchString(kernel):
		return nil, commandOutput{}, berth.Invalid("kernel", "This is not the name of a kernel.")
	}
	return c.start(ctx, in.Container, command.Request{Text: in.Code, Kernel: kernel,
		Timeout: seconds(in.Timeout, defaultTimeout, maxTimeout)}, in.Wait, false)
}

// start starts a command and waits for it.
func (c *call) start(ctx context.Context, name string, req command.Request, patience int,
	background bool) ([]sdk.Content, commandOutput, error) {
	id, err := c.container(ctx, name)
	if err != nil {
		return nil, commandOutput{}, err
	}
	started, err := c.door.Commands.Start(ctx, c.caller, id, req)
	if err != nil {
		return nil, commandOutput{}, err
	}
	if background {
		return shown(started, command.Result{Status: command.Running})
	}
	return c.await(ctx, started, seconds(patience, defaultWait, maxWait), true)
}

// await waits for a command and shows its output to the client while it arrives. If the client cancels the call, the
// command ends if it is the call's own.
func (c *call) await(ctx context.Context, cmd *command.Command, patience time.Duration, own bool) ([]sdk.Content,
	commandOutput, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	result, err := cmd.Wait(limited, c.progress())
	if ctx.Err() != nil && own {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
		defer cancel()
		if err := cmd.Stop(ctx); err != nil {
			c.door.Log.Error("failed to end a cancelled command", "container", cmd.Container, "command", cmd.ID, "err",
				err)
		}
		return nil, commandOutput{}, context.Canceled
	}
	if err != nil {
		return nil, commandOutput{}, err
	}
	return shown(cmd, result)
}

type waitInput struct {
	CommandID string `json:"command_id"`
	Wait      int    `json:"wait_seconds,omitempty" jsonschema:"How long to wait for its end. Default 50."`
	inContainer
}

func wait(ctx context.Context, c *call, in waitInput) ([]sdk.Content, commandOutput, error) {
	cmd, release, err := c.find(ctx, in.Container, in.CommandID)
	if err != nil {
		return nil, commandOutput{}, err
	}
	defer release()
	return c.await(ctx, cmd, seconds(in.Wait, defaultWait, maxWait), false)
}

type stopInput struct {
	CommandID string `json:"command_id"`
	inContainer
}

func stop(ctx context.Context, c *call, in stopInput) ([]sdk.Content, commandOutput, error) {
	cmd, release, err := c.find(ctx, in.Container, in.CommandID)
	if err != nil {
		return nil, commandOutput{}, err
	}
	defer release()
	if err := cmd.Stop(ctx); err != nil {
		return nil, commandOutput{}, err
	}
	return c.await(ctx, cmd, stopGrace, false)
}

// find returns a command of the call's container, which must exist.
func (c *call) find(ctx context.Context, name, id string) (*command.Command, func(), error) {
	var at berth.ContainerID
	var err error
	if name != "" {
		at, err = c.door.Sessions.Existing(ctx, c.caller.Project, name)
	} else {
		at, err = c.existing(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	if at == "" {
		return nil, nil, berth.Errorf(berth.CodeNotFound,
			"The container of the command was not found. Give its name or id in 'container'.")
	}
	return c.door.Commands.Find(ctx, c.caller, at, id)
}

// shown returns a command as the model and programs read it.
func shown(cmd *command.Command, r command.Result) ([]sdk.Content, commandOutput, error) {
	out := commandOutput{CommandID: cmd.ID, Container: string(cmd.Container), Status: string(r.Status),
		ExitCode: r.ExitCode, Stdout: r.Stdout, Stderr: r.Stderr, Truncated: r.Truncated, Files: r.Files}
	var b strings.Builder
	for _, part := range []string{r.Stdout, r.Stderr} {
		b.WriteString(part)
		if part != "" && !strings.HasSuffix(part, "\n") {
			b.WriteByte('\n')
		}
	}
	switch {
	case r.Status == command.Running:
		fmt.Fprintf(&b, "[It still runs. command_id: %s]", cmd.ID)
	case r.Status == command.TimedOut:
		b.WriteString("[It was ended at its timeout.]")
	case r.ExitCode != nil && *r.ExitCode != 0:
		fmt.Fprintf(&b, "[exit code %d]", *r.ExitCode)
	case b.Len() == 0 && len(r.Images) == 0:
		b.WriteString("[no output]")
	}
	if len(r.Files) > 0 {
		fmt.Fprintf(&b, "\n[all of it: %s]", strings.Join(r.Files, ", "))
	}
	var content []sdk.Content
	if b.Len() > 0 {
		content = text(b.String())
	}
	for _, image := range r.Images {
		content = append(content, &sdk.ImageContent{MIMEType: image.MediaType, Data: image.Data})
	}
	return slices.Clip(content), out, nil
}
