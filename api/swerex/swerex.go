// Package swerex serves the API of SWE-ReX's runtime in each container: shells that stay, commands and files. A client
// makes the container, and its RemoteRuntime has the address /swerex/CONTAINER and a key of Berth as token.
//
// The requests and answers are those of SWE-ReX 1.4.
package swerex

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/bash"
	"github.com/berth-run/berth/guest"
)

// Path is the start of the door's paths.
const Path = "/swerex/{container}"

// Options are what the door needs.
type Options struct {
	Containers *container.Service
	Shells     *bash.Service
	MaxBody    int64 // bytes of a request in JSON; default 16 MiB
}

// A Door serves the API. It is safe for concurrent use.
type Door struct{ Options }

// New returns a door.
func New(opts Options) *Door {
	if opts.MaxBody == 0 {
		opts.MaxBody = 16 << 20
	}
	return &Door{opts}
}

// Routes returns the routes of the door.
func (d *Door) Routes() []exchange.Route {
	// Files in a container count towards its disk, not towards the storage of the project.
	const changes = exchange.KeyInHeader | exchange.StoresNothing | exchange.StoresLittle
	const stores = exchange.KeyInHeader | exchange.StoresNothing
	route := func(method, name string, serve func(*visit) error, traits exchange.Traits) exchange.Route {
		rt := exchange.On(method+" "+Path+"/"+name, d.visitor(serve), traits)
		rt.WriteError, rt.Fail = writeError, fail
		return rt
	}
	return []exchange.Route{
		route("GET", "is_alive", (*visit).isAlive, exchange.KeyInHeader),
		route("POST", "create_session", (*visit).createSession, changes),
		route("POST", "run_in_session", (*visit).runInSession, changes),
		route("POST", "close_session", (*visit).closeSession, changes),
		route("POST", "execute", (*visit).execute, changes),
		route("POST", "read_file", (*visit).readFile, changes),
		route("POST", "write_file", (*visit).writeFile, stores),
		route("POST", "upload", (*visit).upload, stores),
		route("POST", "close", (*visit).close, changes),
	}
}

// A visit is a request to a container.
type visit struct {
	door *Door
	x    *exchange.Exchange
	r    *http.Request
	box  bash.Box
}

func (d *Door) visitor(serve func(*visit) error) exchange.Handler {
	return func(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
		id := berth.ContainerID(r.PathValue("container"))
		if done, err := x.ToContainer(r, c.Project, id); done || err != nil {
			return err
		}
		client, release, err := d.Containers.Access().Guest(r.Context(), c, id)
		if err != nil {
			return err
		}
		defer release()
		return serve(&visit{d, x, r, bash.Box{Caller: c, Container: id, Guest: client}})
	}
}

// decode reads the body of a request. Fields that it does not know are those of newer clients, and have no effect.
func (v *visit) decode(into any) error {
	body, err := v.x.ReadBody(v.r, v.door.MaxBody)
	if err != nil {
		return err
	}
	if _, err := exchange.ScanJSON(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return berth.Invalid("", "The body does not have the form of this request: %v.", err)
	}
	return nil
}

// answer answers with JSON.
func (v *visit) answer(value any) error { return v.x.JSON(http.StatusOK, value) }

// A thrown error is one that the client raises as an exception of a class.
type thrown struct {
	class, message string
	extra          map[string]any
}

func (t *thrown) Error() string { return t.message }

// statusThrown is the status with which SWE-ReX sends exceptions.
const statusThrown = http.StatusNetworkAuthenticationRequired

// throw returns an exception of SWE-ReX.
func throw(class, message string) error {
	return &thrown{class: "swerex.exceptions." + class, message: message}
}

// builtin returns an exception of Python.
func builtin(class, message string) error {
	return &thrown{class: "builtins." + class, message: message}
}

// thrownBy returns the exception for an error of a shell, a process or a file.
func (v *visit) thrownBy(err error, session string) error {
	if syntax, ok := errors.AsType[*bash.SyntaxError](err); ok {
		return &thrown{"swerex.exceptions.BashIncorrectSyntaxError", syntax.Message,
			map[string]any{"bash_stdout": "", "bash_stderr": syntax.Message}}
	}
	switch {
	case v.r.Context().Err() != nil:
		return context.Cause(v.r.Context())
	case errors.Is(err, bash.ErrExists):
		return throw("SessionExistsError", fmt.Sprintf("session %s already exists", session))
	case errors.Is(err, bash.ErrNone):
		return throw("SessionDoesNotExistError", fmt.Sprintf("session '%s' does not exist", session))
	case errors.Is(err, bash.ErrEnded):
		return throw("SwerexException", "The shell of the session has ended.")
	case errors.Is(err, bash.ErrTooLong):
		return throw("SwerexException", "A line for an interactive program has at most 4000 bytes.")
	case errors.Is(err, guest.ErrNoSpace):
		return builtin("OSError", "No space left on device")
	case errors.Is(err, fs.ErrNotExist):
		return builtin("FileNotFoundError", "No such file or directory")
	}
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*connect.Error](err); ok {
		switch e.Code() {
		case connect.CodeInvalidArgument:
			return builtin("FileNotFoundError", e.Message())
		case connect.CodePermissionDenied:
			return builtin("PermissionError", e.Message())
		}
	}
	return &berth.Error{Code: berth.CodeUnavailable, Err: err,
		Message: "The container does not answer. Try again in a moment."}
}

func writeError(x *exchange.Exchange, status int, e exchange.Error) {
	_ = x.JSON(status, map[string]string{"detail": e.Message})
}

// fail answers a request that failed.
func fail(x *exchange.Exchange, r *http.Request, err error) {
	t, ok := errors.AsType[*thrown](err)
	if !ok || x.Started() {
		x.Fail(r, err)
		return
	}
	extra := t.extra
	if extra == nil {
		extra = map[string]any{}
	}
	_ = x.JSON(statusThrown, map[string]any{"swerexception": map[string]any{"message": t.message,
		"class_path": t.class, "traceback": "", "extra_info": extra}})
}

// seconds returns a time that a client gives in seconds; none is 0. Long ones are cut.
func seconds(s *float64) time.Duration {
	const most = 24 * time.Hour
	if s == nil {
		return 0
	}
	return min(most, max(time.Millisecond, time.Duration(min(*s, most.Seconds())*float64(time.Second))))
}
