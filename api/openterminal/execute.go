package openterminal

import (
	"context"
	"errors"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container/process"
	"github.com/berth-run/berth/guest"
)

// Limits of commands.
const (
	maxWait    = 300     // seconds
	maxCommand = 1 << 20 // bytes of a command with its environment
	maxInput   = 1 << 20 // bytes
)

// screen is the size of terminals before their clients set it.
var screen = guest.Size{Cols: 80, Rows: 24}

// A commandState is a command as clients read it.
type commandState struct {
	ID       string         `json:"id"`
	Command  string         `json:"command"`
	Dir      string         `json:"cwd,omitempty"`
	Status   process.Status `json:"status"`
	ExitCode *int           `json:"exit_code"`
	LogPath  *string        `json:"log_path"` // null: the output is not in a file
}

// A commandOutput is a command with its output.
type commandOutput struct {
	commandState
	Output    []outputEntry `json:"output"`
	Next      int           `json:"next_offset"`
	Truncated bool          `json:"truncated"`
}

// An outputEntry is a piece of output.
type outputEntry struct {
	Type string `json:"type"` // output
	Data string `json:"data"`
}

func stateOf(p *process.Process, s process.Snapshot) commandState {
	return commandState{ID: p.ID, Command: p.Command, Status: s.Status, ExitCode: s.ExitCode}
}

func outputOf(p *process.Process, offset, tail int) commandOutput {
	s := p.Read(offset, tail)
	out := commandOutput{commandState: stateOf(p, s), Output: make([]outputEntry, len(s.Output)), Next: s.Next,
		Truncated: s.Truncated}
	for i, text := range s.Output {
		out.Output[i] = outputEntry{"output", text}
	}
	return out
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// execute serves POST /execute.
func (v *visit) execute() error {
	q := parametersOf(v.r)
	wait, tail := q.number("wait", -1, 0, maxWait), q.integer("tail", 0, 1, math.MaxInt32)
	if err := q.end(); err != nil {
		return err
	}
	var body struct {
		Command string            `json:"command"`
		Dir     *string           `json:"cwd"`
		Env     map[string]string `json:"env"`
	}
	if err := v.decode(&body, "command"); err != nil {
		return err
	}
	size := len(body.Command)
	for name, value := range body.Env {
		size += len(name) + len(value)
		if !variableName.MatchString(name) || strings.ContainsRune(value, 0) {
			return berth.Invalid("env", "Invalid environment variable.")
		}
	}
	if size > maxCommand || strings.ContainsRune(body.Command, 0) {
		return berth.Invalid("command",
			"The command is longer than %d bytes or contains a NUL byte. Write long data to a file.", maxCommand)
	}
	dir := v.cwd()
	if body.Dir != nil && *body.Dir != "" {
		dir = v.path(*body.Dir)
	}
	p, err := v.start(process.Spec{Command: body.Command, Request: guest.ProcessRequest{Cmd: "/bin/sh",
		Args: []string{"-c", body.Command}, Env: withTerminal(body.Env), Dir: dir, TTY: &screen}})
	if err != nil {
		return err
	}
	if err := v.wait(p, wait); err != nil {
		return err
	}
	out := outputOf(p, 0, tail)
	out.Dir = dir
	return v.x.JSON(http.StatusOK, out)
}

// withTerminal adds the type of the terminal to an environment.
func withTerminal(env map[string]string) map[string]string {
	all := map[string]string{"TERM": "xterm-256color"}
	for name, value := range env {
		all[name] = value
	}
	return all
}

// start starts a process in its directory.
func (v *visit) start(spec process.Spec) (*process.Process, error) {
	at, err := v.client.Stat(v.r.Context(), spec.Request.Dir)
	if err != nil || !at.Dir {
		return nil, refused(http.StatusBadRequest, "Working directory not found: "+spec.Request.Dir)
	}
	p, err := v.door.Processes.Start(v.r.Context(), v.caller, v.owner, spec)
	if err != nil {
		return nil, v.guestError(err)
	}
	return p, nil
}

// wait waits for the end of a process, for some seconds.
func (v *visit) wait(p *process.Process, seconds float64) error {
	if seconds < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	p.Wait(ctx)
	return ended(v.r.Context())
}

// listCommands serves GET /execute.
func (v *visit) listCommands() error {
	all := []commandState{}
	for _, p := range v.door.Processes.List(v.owner, false) {
		all = append(all, stateOf(p, p.Read(math.MaxInt, 0)))
	}
	return v.x.JSON(http.StatusOK, all)
}

// command returns the command of the path.
func (v *visit) command() (*process.Process, error) {
	p, ok := v.door.Processes.Find(v.owner, v.r.PathValue("process"), false)
	if !ok {
		return nil, refused(http.StatusNotFound, "Process not found")
	}
	return p, nil
}

// status serves GET /execute/{process}/status.
func (v *visit) status() error {
	q := parametersOf(v.r)
	wait, offset := q.number("wait", -1, 0, maxWait), q.integer("offset", 0, 0, math.MaxInt32)
	tail := q.integer("tail", 0, 1, math.MaxInt32)
	if err := q.end(); err != nil {
		return err
	}
	p, err := v.command()
	if err != nil {
		return err
	}
	if err := v.wait(p, wait); err != nil {
		return err
	}
	return v.x.JSON(http.StatusOK, outputOf(p, offset, tail))
}

// input serves POST /execute/{process}/input.
func (v *visit) input() error {
	p, err := v.command()
	if err != nil {
		return err
	}
	var body struct {
		Input string `json:"input"`
	}
	if err := v.decode(&body, "input"); err != nil {
		return err
	}
	if err := v.send(p, []byte(unescape(body.Input))); err != nil {
		return err
	}
	return v.x.JSON(http.StatusOK, map[string]string{"status": "ok"})
}

// send sends input to a process.
func (v *visit) send(p *process.Process, data []byte) error {
	if len(data) > maxInput {
		return berth.Errorf(berth.CodeTooLarge, "The input is longer than %d bytes.", maxInput)
	}
	switch err := p.Write(v.r.Context(), data); {
	case errors.Is(err, process.ErrEnded):
		return refused(http.StatusBadRequest, "Process has already exited")
	case err != nil:
		return refused(http.StatusBadRequest, "Process stdin is closed")
	}
	return nil
}

var escape = regexp.MustCompile(`\\(?:[\\'"abfnrtv]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[0-7]{1,3})`)

// unescape replaces escape sequences, which models often send as such.
func unescape(text string) string {
	return escape.ReplaceAllStringFunc(text, func(s string) string {
		switch s[1] {
		case '\\', '\'', '"':
			return s[1:]
		case 'x', 'u':
			n, _ := strconv.ParseUint(s[2:], 16, 32) // the pattern allows no other
			return string(rune(n))
		}
		if s[1] >= '0' && s[1] <= '7' {
			n, _ := strconv.ParseUint(s[1:], 8, 32)
			return string(rune(n))
		}
		return map[byte]string{'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v"}[s[1]]
	})
}

// kill serves DELETE /execute/{process}.
func (v *visit) kill() error {
	q := parametersOf(v.r)
	force := q.boolean("force", false)
	if err := q.end(); err != nil {
		return err
	}
	p, err := v.command()
	if err != nil {
		return err
	}
	if err := p.Kill(v.r.Context(), force); err != nil {
		return v.guestError(err)
	}
	return v.x.JSON(http.StatusOK, map[string]string{"status": "killed"})
}
