package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/deadline"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/guest/jupyter"
)

// executionKeepAlive is the interval of keep-alive lines.
const executionKeepAlive = 5 * time.Second

// Exit codes of code for which there is no kernel.
const (
	exitNotStarted = 126
	exitNoKernel   = 127
)

// interruptTime bounds the interrupt of code whose client is gone.
const interruptTime = 30 * time.Second

// executions are the calls that run on this server, by context. The zero value is empty.
type executions struct {
	mu   sync.Mutex
	live map[string][]string
}

// of returns the calls of a context.
func (e *executions) of(context string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.live[context])
}

// add adds a call until done is called.
func (e *executions) add(context, callID string) (done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.live == nil {
		e.live = map[string][]string{}
	}
	e.live[context] = append(e.live[context], callID)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		rest := slices.DeleteFunc(e.live[context], func(id string) bool { return id == callID })
		if e.live[context] = rest; len(rest) == 0 {
			delete(e.live, context)
		}
	}
}

// execute runs code and streams what it outputs as lines of JSON. If the client disconnects, the code is
// interrupted.
func (in interpreter) execute(x *exchange.Exchange, r *http.Request) error {
	var body struct {
		Code      *string           `json:"code"`
		ContextID *string           `json:"context_id"`
		Language  *string           `json:"language"`
		Env       map[string]string `json:"env_vars"`
	}
	if err := decodeBody(x, r, &body); err != nil {
		return err
	}
	switch {
	case body.Code == nil:
		return berth.Invalid("code", "Missing required parameter: 'code'.")
	case len(*body.Code) > maxCode || strings.ContainsRune(*body.Code, 0):
		return berth.Invalid("code", "Invalid 'code'. Expected up to %d bytes without NUL.", maxCode)
	case body.ContextID != nil && body.Language != nil:
		return berth.Invalid("", "Only one of 'context_id' and 'language' may be set.")
	}
	var c *deadline.Context
	var err error
	switch {
	case body.ContextID != nil:
		c, err = in.find(r.Context(), *body.ContextID)
	case body.Language != nil:
		c, err = in.byLanguage(r.Context(), *body.Language)
	default:
		c, err = in.byLanguage(r.Context(), "")
	}
	if err != nil {
		return err
	}
	code, err := withEnvironment(c.Language, *body.Code, body.Env)
	if err != nil {
		return err
	}
	call := guest.ShellCall{CallID: berth.NewID("execute_"), Commands: []string{code}, Kernel: instance(c)}
	defer in.all.executions.add(c.ID, call.CallID)()
	return in.stream(r.Context(), newJSONLines(x), call)
}

// stream runs a call and writes its events.
func (in interpreter) stream(ctx context.Context, out *jsonLines, call guest.ShellCall) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := out.keepAlive(cancel)
	defer stop()
	var lines jupyter.Decoder
	notice := "The kernel did not start."
	for ev, err := range in.shell.Shell(ctx, call) {
		switch {
		case err != nil:
		case ev.Kind == guest.ShellStdout:
			for _, e := range lines.Write(ev.Data, ev.Skipped) {
				if e.Type == jupyter.Notice {
					notice = strings.TrimSpace(e.Text)
				}
				if err = out.write(e); err != nil {
					cancel() // the next step ends the loop
					break
				}
			}
		case ev.Kind == guest.ShellExit && (ev.ExitCode == exitNotStarted || ev.ExitCode == exitNoKernel):
			err = out.line(map[string]any{"type": "error", "name": "KernelError", "value": notice, "traceback": notice})
		}
		if ctx.Err() != nil {
			return in.interrupt(ctx, call)
		}
		if err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return in.interrupt(ctx, call)
	}
	return out.line(map[string]any{"type": "end_of_execution"})
}

// interrupt interrupts the code of a client that is gone.
func (in interpreter) interrupt(ctx context.Context, call guest.ShellCall) error {
	cause := context.Cause(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), interruptTime)
	defer cancel()
	if err := in.shell.Cancel(ctx, call.CallID); err != nil {
		return fmt.Errorf("interrupt code: %w", err)
	}
	return cause
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// withEnvironment returns code that runs with environment variables, which have their former values after it.
func withEnvironment(language, code string, env map[string]string) (string, error) {
	if len(env) == 0 {
		return code, nil
	}
	names := slices.Sorted(maps.Keys(env))
	var before, after strings.Builder
	for _, name := range names {
		value := env[name]
		if !variableName.MatchString(name) || strings.ContainsRune(value, 0) {
			return "", berth.Invalid("env_vars", "Invalid environment variable '%s'.", name)
		}
		quoted, err := json.Marshal(value) // also a literal of Python and JavaScript
		if err != nil {
			return "", fmt.Errorf("encode variable: %w", err)
		}
		switch language {
		case "python":
			fmt.Fprintf(&before,
				"globals().setdefault('_berth_env', {})[%[1]q] = __import__('os').environ.get(%[1]q); __import__('os').environ[%[1]q] = %[2]s\n",
				name, quoted)
			fmt.Fprintf(&after,
				"(lambda v: __import__('os').environ.pop(%[1]q, None) if v is None else __import__('os').environ.__setitem__(%[1]q, v))(_berth_env.pop(%[1]q))\n",
				name)
		case "javascript", "typescript":
			fmt.Fprintf(&before,
				"(globalThis._berthEnv ??= {})[%[1]q] = Deno.env.get(%[1]q); Deno.env.set(%[1]q, %[2]s);\n",
				name, quoted)
			fmt.Fprintf(&after, "((v) => v === undefined ? Deno.env.delete(%[1]q) : Deno.env.set(%[1]q, v))"+
				"(globalThis._berthEnv[%[1]q]);\n", name)
		case "r":
			fmt.Fprintf(&before, ".berth_env_%[1]s <- Sys.getenv(%[1]q, unset = NA); Sys.setenv(%[1]s = %[2]s)\n", name,
				quoted)
			fmt.Fprintf(&after,
				"if (is.na(.berth_env_%[1]s)) Sys.unsetenv(%[1]q) else Sys.setenv(%[1]s = .berth_env_%[1]s); "+
					"rm(.berth_env_%[1]s)\n", name)
		case "bash":
			fmt.Fprintf(&before,
				"unset _berth_env_%[1]s; [ -z \"${%[1]s+x}\" ] || _berth_env_%[1]s=$%[1]s; export %[1]s=%[2]s\n",
				name, quote(value))
			fmt.Fprintf(&after, "if [ -n \"${_berth_env_%[1]s+x}\" ]; then export %[1]s=\"$_berth_env_%[1]s\"; "+
				"unset _berth_env_%[1]s; else unset %[1]s; fi\n", name)
		default:
			return "", berth.Invalid("env_vars", "Environment variables of one execution are not supported for '%s'.",
				language)
		}
	}
	if language == "python" {
		after.WriteString("del _berth_env\n")
	}
	return jupyter.Wrap(before.String(), code, after.String()), nil
}

// A jsonLines writes lines of JSON, each immediately.
type jsonLines struct {
	x   *exchange.Exchange
	out *exchange.PatientWriter

	mu      sync.Mutex
	silence *time.Timer
	stopped bool
}

func newJSONLines(x *exchange.Exchange) *jsonLines {
	x.Header().Set("Content-Type", "application/x-ndjson")
	x.Header().Set("Cache-Control", "no-cache")
	x.Header().Set("X-Accel-Buffering", "no") // otherwise nginx buffers lines
	x.Header().Set("X-Content-Type-Options", "nosniff")
	return &jsonLines{x: x, out: x.Patient()}
}

// keepAlive writes a line whenever nothing else was written for a while, until stop is called. It calls gone if
// the client is.
func (w *jsonLines) keepAlive(gone func()) (stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silence = time.AfterFunc(executionKeepAlive, func() {
		if w.line(map[string]any{"type": "keepalive"}) != nil {
			gone()
		}
	})
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stopped = true
		w.silence.Stop()
		w.out.Renew() // the server sends the last bytes after the handler returns
	}
}

// line writes a line.
func (w *jsonLines) line(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode line: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return nil
	}
	if w.silence != nil {
		w.silence.Reset(executionKeepAlive)
	}
	if _, err := w.out.Write(append(raw, '\n')); err != nil {
		return fmt.Errorf("write line: %w", err)
	}
	if err := http.NewResponseController(w.out).Flush(); err != nil {
		return fmt.Errorf("flush line: %w", err)
	}
	return nil
}

// resultNames are the names of a result's fields, by media type.
var resultNames = map[string]string{"text/plain": "text", "text/html": "html", "text/markdown": "markdown",
	"image/svg+xml": "svg", "image/png": "png",
	"image/jpeg": "jpeg", "application/pdf": "pdf", "text/latex": "latex", "application/json": "json",
	"application/javascript": "javascript",
	"e2b/data":               "data", "e2b/chart": "chart"}

// write writes the line of an event, if it has one.
func (w *jsonLines) write(e jupyter.Event) error {
	printed := func(stream, text string) error {
		return w.line(map[string]any{"type": stream, "text": text, "timestamp": time.Now().UnixNano()})
	}
	switch e.Type {
	case jupyter.Stream:
		if e.Name == "" {
			return printed("stdout", e.Text)
		}
		return printed("stderr", e.Text)
	case jupyter.Result, jupyter.Display:
		return w.line(resultOf(e))
	case jupyter.Failure:
		return w.line(map[string]any{"type": "error", "name": e.Name, "value": e.Value, "traceback": e.Text})
	case jupyter.Died:
		return w.line(map[string]any{"type": "error", "name": "KernelDied", "value": e.Text, "traceback": e.Text})
	case jupyter.Count:
		n, err := strconv.Atoi(e.Text)
		if err != nil {
			return nil // not the guest's
		}
		return w.line(map[string]any{"type": "number_of_executions", "execution_count": n})
	}
	return printed("stderr", e.Plain())
}

// resultOf returns the fields of a result.
func resultOf(e jupyter.Event) map[string]any {
	line := map[string]any{"type": "result", "is_main_result": e.Type == jupyter.Result}
	extra := map[string]any{}
	for media, raw := range e.Data {
		var value any = raw
		if text, ok := e.String(media); ok {
			value = text
		}
		name, known := resultNames[media]
		if !known {
			extra[media] = value
			continue
		}
		if text, ok := value.(string); ok && name == "text" {
			value = unquoted(text)
		}
		line[name] = value
	}
	if len(extra) > 0 {
		line["extra"] = extra
	}
	return line
}

// unquoted returns the text of a string as Python shows it, without its quotes.
func unquoted(text string) string {
	for _, quote := range []string{"'", `"`} {
		if len(text) > 1 && strings.HasPrefix(text, quote) && strings.HasSuffix(text, quote) {
			return text[1 : len(text)-1]
		}
	}
	return text
}

// quote quotes a text for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
