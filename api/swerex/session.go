package swerex

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth/container/bash"
	"github.com/berth-run/berth/guest"
)

// isAlive serves GET /is_alive.
func (v *visit) isAlive() error {
	if err := v.box.Guest.Ping(v.r.Context()); err != nil {
		return v.answer(map[string]any{"is_alive": false, "message": "The container does not answer."})
	}
	return v.answer(map[string]any{"is_alive": true, "message": ""})
}

// startTime is added to what a client gives a shell to start: here, the container may have to wake.
const startTime = 30 * time.Second

// createSession serves POST /create_session.
func (v *visit) createSession() error {
	body := struct {
		Session string   `json:"session"`
		Sources []string `json:"startup_source"`
		Timeout *float64 `json:"startup_timeout"`
	}{Session: "default"}
	if err := v.decode(&body); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(v.r.Context(), startTime+seconds(body.Timeout))
	defer cancel()
	output, err := v.door.Shells.Create(ctx, v.box, body.Session, body.Sources)
	if errors.Is(err, bash.ErrTimeout) {
		return throw("CommandTimeoutError", "timeout while starting the session")
	}
	if err != nil {
		return v.thrownBy(err, body.Session)
	}
	return v.answer(map[string]string{"output": output, "session_type": "bash"})
}

// An action is what a client does in a session.
type action struct {
	Type        string   `json:"action_type"`
	Session     string   `json:"session"`
	Command     string   `json:"command"`
	Timeout     *float64 `json:"timeout"`
	Interactive bool     `json:"is_interactive_command"`
	Quit        bool     `json:"is_interactive_quit"`
	Check       string   `json:"check"` // silent, raise or ignore
	Message     string   `json:"error_msg"`
	Expect      []string `json:"expect"`
	Retries     int      `json:"n_retry"`
}

// maxExpect bounds the texts that an action expects.
const maxExpect = 100

// runInSession serves POST /run_in_session.
func (v *visit) runInSession() error {
	a := action{Type: "bash", Session: "default", Check: "raise", Retries: 3}
	if err := v.decode(&a); err != nil {
		return err
	}
	expect := a.Expect[:0]
	for _, word := range a.Expect[:min(len(a.Expect), maxExpect)] {
		if word != "" {
			expect = append(expect, word)
		}
	}
	var r bash.Result
	var err error
	if a.Type == "bash_interrupt" {
		r, err = v.door.Shells.Interrupt(v.r.Context(), v.box.Container, a.Session, a.Retries, seconds(a.Timeout),
			expect)
	} else {
		r, err = v.door.Shells.Run(v.r.Context(), v.box, a.Session, bash.Command{Text: a.Command,
			Timeout: seconds(a.Timeout), Expect: expect, Interactive: a.Interactive, Quit: a.Quit})
	}
	switch {
	case errors.Is(err, bash.ErrTimeout) && a.Type == "bash_interrupt":
		return throw("CommandTimeoutError", "Failed to interrupt session")
	case errors.Is(err, bash.ErrTimeout):
		return throw("CommandTimeoutError", fmt.Sprintf("timeout after %v seconds while running command %s",
			seconds(a.Timeout).Seconds(), quote(a.Command)))
	case err != nil:
		return v.thrownBy(err, a.Session)
	}
	if a.Check == "raise" && r.ExitCode != nil && *r.ExitCode != 0 {
		message := fmt.Sprintf("Command %s failed with exit code %d. Here is the output:\n%s", quote(a.Command),
			*r.ExitCode, quote(r.Output))
		return throw("NonZeroExitCodeError", prefixed(a.Message, message))
	}
	if a.Check == "ignore" {
		r.ExitCode = nil
	}
	return v.answer(map[string]any{"output": r.Output, "exit_code": r.ExitCode, "failure_reason": "",
		"expect_string": r.Matched, "session_type": "bash"})
}

// prefixed puts the client's message before another.
func prefixed(before, message string) string {
	if before == "" {
		return message
	}
	return before + ": " + message
}

// quote quotes a text for a message, of which it keeps the start.
func quote(text string) string {
	const most = 64 << 10
	return fmt.Sprintf("%q", text[:min(len(text), most)])
}

// closeSession serves POST /close_session.
func (v *visit) closeSession() error {
	body := struct {
		Session string `json:"session"`
	}{"default"}
	if err := v.decode(&body); err != nil {
		return err
	}
	if err := v.door.Shells.Close(v.r.Context(), v.box.Container, body.Session); err != nil {
		return v.thrownBy(err, body.Session)
	}
	return v.answer(map[string]string{"session_type": "bash"})
}

// close serves POST /close. The container remains: whoever made it deletes it.
func (v *visit) close() error {
	if err := v.door.Shells.CloseAll(v.r.Context(), v.box.Container); err != nil {
		return v.thrownBy(err, "")
	}
	return v.answer(map[string]any{})
}

// A command is what execute runs.
type command struct {
	Command argv              `json:"command"`
	Timeout *float64          `json:"timeout"`
	Shell   bool              `json:"shell"`
	Check   bool              `json:"check"`
	Message string            `json:"error_msg"`
	Env     map[string]string `json:"env"`
	Dir     *string           `json:"cwd"`
	Merge   bool              `json:"merge_output_streams"`
}

// Limits of commands.
const (
	maxOutput  = 16 << 20
	maxCommand = time.Hour
)

// execute serves POST /execute.
func (v *visit) execute() error {
	var c command
	if err := v.decode(&c); err != nil {
		return err
	}
	if len(c.Command) == 0 {
		return builtin("ValueError", "The command is empty")
	}
	words := c.Command
	if c.Shell {
		words = append(argv{"/bin/sh", "-c"}, c.Command...)
	}
	if c.Merge {
		words = append(argv{"/bin/sh", "-c", `exec "$@" 2>&1`, "sh"}, words...)
	}
	req := guest.ProcessRequest{Cmd: words[0], Args: words[1:], Env: c.Env}
	if c.Dir != nil {
		req.Dir = *c.Dir
	}
	limit := seconds(c.Timeout)
	if limit == 0 {
		limit = maxCommand
	}
	out, err := bash.Execute(v.r.Context(), v.box.Guest, req, limit, maxOutput)
	if errors.Is(err, bash.ErrTimeout) {
		return throw("CommandTimeoutError",
			fmt.Sprintf("Timeout (%vs) exceeded while running command", limit.Seconds()))
	}
	if err != nil {
		return v.thrownBy(err, "")
	}
	if c.Check && out.ExitCode != 0 {
		return throw("NonZeroExitCodeError", prefixed(c.Message,
			fmt.Sprintf("Command %s failed with exit code %d. Stdout:\n%s\nStderr:\n%s", quote(c.Command.String()),
				out.ExitCode, quote(out.Stdout), quote(out.Stderr))))
	}
	return v.answer(map[string]any{"stdout": text(out.Stdout), "stderr": text(out.Stderr), "exit_code": out.ExitCode})
}
