package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/rule"
)

// Limits of POST /v1/containers/{container}/exec.
const (
	maxExecArgs      = 4096
	maxExecText      = 1 << 20 // bytes of an argument, and of the input
	maxExecTime      = time.Hour
	defaultExecTime  = 10 * time.Minute
	maxExecOutput    = 16 << 20
	defaultExecBytes = 1 << 20
	maxKillTime      = 10 * time.Second
)

// execBody checks the body of POST /v1/containers/{container}/exec.
var execBody = rule.Object(rule.Fields{
	"command":           execCommandRule,
	"working_directory": rule.Text(1, 4096),
	"env":               envRule,
	"user":              rule.Text(1, 64),
	"stdin":             rule.Text(0, maxExecText),
	"timeout_ms":        rule.Integer(1, maxExecTime.Milliseconds()),
	"max_output_bytes":  rule.Integer(1, maxExecOutput),
	"stream":            rule.Boolean,
}, "command")

func execCommandRule(at string, v any) error {
	if _, ok := v.(string); ok {
		return rule.Text(1, maxExecText)(at, v)
	}
	if _, ok := v.([]any); ok {
		return rule.AtLeastOne(rule.List(rule.Text(0, maxExecText), maxExecArgs))(at, v)
	}
	return rule.WrongType(at, "a string or a list of strings", v)
}

func envRule(at string, v any) error {
	if err := rule.AnyObject(at, v); err != nil {
		return err
	}
	for name, value := range v.(map[string]any) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return berth.Invalid(at, "Invalid '%s': '%s' is not the name of an environment variable.", at,
				rule.Clip(name))
		}
		if err := rule.Text(0, maxExecText)(rule.Join(at, name), value); err != nil {
			return err
		}
	}
	return nil
}

// An execRequest is a command to run in a container.
type execRequest struct {
	Command          execCommand       `json:"command"`
	WorkingDirectory string            `json:"working_directory"` // default: /mnt/data
	Env              map[string]string `json:"env"`
	User             string            `json:"user"`
	Stdin            *string           `json:"stdin"`
	TimeoutMS        int64             `json:"timeout_ms"`       // up to an hour; default: 10 minutes
	MaxOutputBytes   int               `json:"max_output_bytes"` // of each output; default: 1 MiB
	Stream           bool              `json:"stream"`           // answer with server-sent events
}

// An execCommand is a program with its arguments. On the wire it may also be a string, which
// /bin/sh runs.
type execCommand []string

func (c *execCommand) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*c = execCommand{"/bin/sh", "-c", text}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(c))
}

// An execResult is the answer: how a command ended, and its output.
type execResult struct {
	Object      string            `json:"object"` // "container.exec"
	ContainerID berth.ContainerID `json:"container_id"`
	Outcome     execOutcome       `json:"outcome"`
	ExitCode    *int              `json:"exit_code"` // null unless the command exited by itself
	Stdout      *string           `json:"stdout,omitempty"`
	Stderr      *string           `json:"stderr,omitempty"`
	Truncated   bool              `json:"truncated"` // output beyond max_output_bytes was dropped
	DurationMS  int64             `json:"duration_ms"`
}

// An execOutcome is how a command ended: by "exit", by a "signal", or by the "timeout".
type execOutcome struct {
	Type     string `json:"type"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Signal   int    `json:"signal,omitempty"` // its number, if it is known
}

// An execDelta is a piece of output in the stream of a command.
type execDelta struct {
	Delta string `json:"delta"`
}

// exec serves POST /v1/containers/{container}/exec: it runs a command and returns its output,
// or with stream its events. The command ends when the request does.
func (h *containers) exec(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body execRequest
	if err := x.Decode(r, execBody, &body); err != nil {
		return err
	}
	door, release, err := h.service.Access().Door(r.Context(), c, containerID(r))
	if err != nil {
		return err
	}
	defer release()
	patience := defaultExecTime
	if body.TimeoutMS > 0 {
		patience = time.Duration(body.TimeoutMS) * time.Millisecond
	}
	client := guest.NewHTTPClient("http://guest", &http.Client{Transport: door})
	run := &execution{container: containerID(r), started: time.Now(), limit: defaultExecBytes}
	if body.MaxOutputBytes > 0 {
		run.limit = body.MaxOutputBytes
	}
	// The process's stream must outlive the client's connection, to see the process end. The guest
	// enforces the deadline if this server is killed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), patience+maxKillTime)
	defer cancel()
	run.process, err = client.Start(ctx, guest.ProcessRequest{User: body.User, Cmd: body.Command[0],
		Args: body.Command[1:], Env: body.Env,
		Dir: body.WorkingDirectory, In: body.Stdin != nil})
	if err != nil {
		return execError(err)
	}
	gone := r.Context()
	if body.Stream {
		var out *exchange.EventWriter
		out, gone = x.Stream(r, false)
		defer out.Close()
		run.stream = out
	}
	stop := run.killAfter(gone, patience)
	defer stop()
	if body.Stdin != nil {
		go run.input(ctx, *body.Stdin)
	}
	result, err := run.wait()
	if gone.Err() != nil { // the client has gone, or the server stops
		err = errExecStopped
	}
	switch {
	case err != nil && run.stream != nil:
		return run.stream.Fail(run.number, err)
	case err != nil:
		return err
	case run.stream != nil:
		return run.emit("container.exec.completed", result)
	}
	result.Stdout, result.Stderr = run.stdout.text(), run.stderr.text()
	return x.JSON(http.StatusOK, result)
}

var errExecStopped = berth.Errorf(berth.CodeUnavailable,
	"The command was ended, because the server is stopping. Send the request again in a moment.")

// An execution is a running command.
type execution struct {
	container berth.ContainerID
	process   *guest.Process
	started   time.Time
	limit     int // bytes of each output
	stdout    execOutput
	stderr    execOutput
	stream    *exchange.EventWriter // nil without stream
	number    int64                 // of the next event
	expired   chan struct{}         // closed at the timeout
}

// killAfter kills the process when its time is over or its client is gone. stop must be called
// when the process has ended.
func (e *execution) killAfter(gone context.Context, patience time.Duration) (stop func()) {
	e.expired = make(chan struct{})
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-ended:
			return
		case <-timer.C:
			close(e.expired)
		case <-gone.Done():
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(gone), maxKillTime)
		defer cancel()
		_ = e.process.Kill(ctx) // an error means that it has ended, or the sandbox has
	}()
	return func() {
		close(ended)
		<-done
	}
}

// input writes text to the process and closes its input. Errors mean that the process does not read it.
func (e *execution) input(ctx context.Context, text string) {
	const piece = 64 << 10
	for len(text) > 0 {
		n := min(len(text), piece)
		if e.process.Write(ctx, []byte(text[:n])) != nil {
			return
		}
		text = text[n:]
	}
	_ = e.process.CloseStdin(ctx)
}

// wait reads the output to the end of the process.
func (e *execution) wait() (*execResult, error) {
	for ev, err := range e.process.Events() {
		if err != nil {
			return nil, execError(err)
		}
		if ev.Ended {
			return e.result(ev), nil
		}
		e.output(&e.stdout, "container.exec.stdout.delta", ev.Stdout, false)
		e.output(&e.stderr, "container.exec.stderr.delta", ev.Stderr, false)
	}
	return nil, execError(errors.New("no end of the process"))
}

func (e *execution) result(end guest.ProcessEvent) *execResult {
	e.output(&e.stdout, "container.exec.stdout.delta", nil, true)
	e.output(&e.stderr, "container.exec.stderr.delta", nil, true)
	r := &execResult{Object: "container.exec", ContainerID: e.container, Outcome: execOutcome{Type: "signal"},
		Truncated: e.stdout.truncated || e.stderr.truncated, DurationMS: time.Since(e.started).Milliseconds()}
	select {
	case <-e.expired:
		r.Outcome.Type = "timeout"
		return r
	default:
	}
	if end.ExitCode >= 0 {
		r.Outcome.Type, r.Outcome.ExitCode, r.ExitCode = "exit", &end.ExitCode, &end.ExitCode
	} else {
		r.Outcome.Signal = signalNumber(end.Status)
	}
	return r
}

// signalNumber returns the number of the signal in a status such as "signal: killed", or 0.
func signalNumber(status string) int {
	name, ok := strings.CutPrefix(status, "signal: ")
	if !ok {
		return 0
	}
	name, _, _ = strings.Cut(name, " (core dumped)")
	const last = 64
	for n := 1; n <= last; n++ {
		if syscall.Signal(n).String() == name {
			return n
		}
	}
	return 0
}

// output stores output, or sends it as an event.
func (e *execution) output(o *execOutput, event string, data []byte, last bool) {
	text := o.add(data, last, e.limit)
	if e.stream != nil && text != "" {
		_ = e.emit(event, execDelta{text}) // if the client is gone, killAfter kills the process
	}
	if e.stream != nil {
		o.kept.Reset()
	}
}

// emit sends an event of the stream.
func (e *execution) emit(event string, value any) error {
	e.number++
	return e.stream.JSON(event, value)
}

// An execOutput is the output of a command as far as it is stored, as UTF-8.
type execOutput struct {
	kept      bytes.Buffer
	size      int    // bytes accepted
	broken    []byte // start of an incomplete character
	truncated bool
}

// add accepts data up to a limit and returns it as text. A character that is not complete waits for
// the next call, unless this is the last.
func (o *execOutput) add(data []byte, last bool, limit int) string {
	if n := limit - o.size; len(data) > n {
		data, o.truncated = data[:n], true
	}
	o.size += len(data)
	text := append(o.broken, data...)
	end := len(text)
	for i := max(0, end-utf8.UTFMax+1); i < end && !last; i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			end = i
			break
		}
	}
	o.broken = bytes.Clone(text[end:])
	valid := strings.ToValidUTF8(string(text[:end]), "\ufffd")
	o.kept.WriteString(valid)
	return valid
}

func (o *execOutput) text() *string {
	text := o.kept.String()
	return &text
}

// execError returns the client's error for a command that did not run to its end.
func execError(err error) error {
	if e, ok := errors.AsType[*connect.Error](err); ok {
		switch e.Code() {
		case connect.CodeInvalidArgument:
			return berth.Invalid("command", "The command could not be started: %s.", e.Message())
		case connect.CodeUnauthenticated:
			return berth.Invalid("user", "The command could not be started: %s.", e.Message())
		}
	}
	return &berth.Error{Code: berth.CodeUnavailable,
		Message: "The container ended or does not answer, so it is unknown whether the command completed.", Err: err}
}
