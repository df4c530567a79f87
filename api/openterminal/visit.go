package openterminal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/container/process"
	"github.com/berth-run/berth/container/session"
	"github.com/berth-run/berth/guest"
)

// A visit is a request of a user to its container.
type visit struct {
	door   *Door
	x      *exchange.Exchange
	r      *http.Request
	caller berth.Caller
	owner  process.Owner // without a container if the user has none

	client *guest.Client // nil without a container
	home   string        // the guest's path of berth.WorkDir: without isolation, a directory of the machine
}

// creates is the mode of routes that make a container for a user who has none.
const creates = 1

// visitor returns the handler of a route.
func (d *Door) visitor(serve func(*visit) error, mode int) exchange.Handler {
	return func(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
		v := &visit{door: d, x: x, r: r, caller: c, home: berth.WorkDir}
		name, err := v.identify()
		if err != nil {
			return err
		}
		if v.owner.Container, err = d.container(r.Context(), c, name, mode); err != nil {
			return err
		}
		if v.owner.Container == "" {
			return serve(v)
		}
		if done, err := x.ToContainer(r, c.Project, v.owner.Container); done || err != nil {
			return err
		}
		if mode != creates {
			return serve(v)
		}
		client, release, err := d.Containers.Access().Guest(r.Context(), c, v.owner.Container)
		if err != nil {
			return err
		}
		defer release()
		v.client = client
		if v.home, err = client.WorkDir(r.Context()); err != nil {
			return v.guestError(err)
		}
		return serve(v)
	}
}

// container returns the container with a name. Without one, it creates it if the mode says so.
func (d *Door) container(ctx context.Context, c berth.Caller, name string, mode int) (berth.ContainerID, error) {
	if mode != creates {
		return d.Sessions.Existing(ctx, c.Project, name)
	}
	return d.Sessions.Find(ctx, c, session.Spec{Name: name, Template: d.Container.Template,
		Network: d.Container.Network, MemoryLimit: d.Container.MemoryLimit, IdleMinutes: d.Container.IdleMinutes})
}

// maxID bounds the ids of users, sessions and contexts, in bytes.
const maxID = 128

// identify reads who sends a request, and returns the name of the container. Requests without a user share one.
func (v *visit) identify() (name string, err error) {
	of, where := ownerOf(v.r.Header, v.caller.Project)
	for header, id := range map[string]string{userHeader: of.User, sessionHeader: of.Session, contextHeader: where} {
		if len(id) > maxID || !utf8.ValidString(id) || strings.ContainsFunc(id, func(r rune) bool {
			return r < ' ' || r == 0x7f
		}) {
			return "", berth.Invalid("", "Invalid header '%s'. Expected at most %d bytes without control characters.",
				header, maxID)
		}
	}
	v.owner = of
	return containerName(of.User, where), nil
}

// ownerOf returns the owner of what a request with a header starts, and the part of the user's work that it is for.
func ownerOf(h http.Header, p berth.ProjectID) (owner process.Owner, where string) {
	return process.Owner{Project: p, User: h.Get(userHeader), Session: h.Get(sessionHeader)}, h.Get(contextHeader)
}

// containerName returns the name of the container of a user. No two users have the same: a slash in an id is escaped.
func containerName(user, where string) string {
	escape := strings.NewReplacer("%", "%25", "/", "%2F")
	name := "open-terminal/" + escape.Replace(user)
	if where != "" {
		name += "/" + escape.Replace(where)
	}
	return name
}

// path returns the absolute path of an argument: relative ones are below the directory of the session.
func (v *visit) path(name string) string {
	if !path.IsAbs(name) {
		name = path.Join(v.cwd(), name)
	}
	name = path.Clean(name)
	for _, alias := range []string{berth.WorkDir, "/home/user"} { // models often name these
		if rest, below := strings.CutPrefix(name, alias); below && (rest == "" || rest[0] == '/') {
			return v.home + rest
		}
	}
	return name
}

// cwd returns the directory of the session.
func (v *visit) cwd() string {
	if dir := v.door.Processes.Dir(v.owner); dir != "" {
		return dir
	}
	return v.home
}

// guestError returns the client's error for a failed call of the guest.
func (v *visit) guestError(err error) error {
	switch e, ok := errors.AsType[*berth.Error](err); {
	case ok:
		return e
	case ended(v.r.Context()) != nil:
		return ended(v.r.Context())
	case errors.Is(err, guest.ErrNoSpace):
		return berth.Errorf(berth.CodeInsufficientStorage, "The disk of the container is full.")
	}
	return &berth.Error{Code: berth.CodeUnavailable, Err: err,
		Message: "The container does not answer. Try again in a moment."}
}

// decode reads the body of a request. Each required field must be there.
func (v *visit) decode(into any, required ...string) error {
	body, err := v.x.ReadBody(v.r, v.door.MaxBody)
	if err != nil {
		return err
	}
	if _, err := exchange.ScanJSON(body); err != nil {
		return faults{{"json_invalid", []any{"body"}, "JSON decode error", map[string]any{}}}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return faults{{"model_attributes_type", []any{"body"}, "Input should be a valid dictionary", nil}}
	}
	var wrong faults
	for _, name := range required {
		if len(fields[name]) == 0 {
			wrong = append(wrong, fault{"missing", []any{"body", name}, "Field required", map[string]any{}})
		}
	}
	if wrong != nil {
		return wrong
	}
	if err := json.Unmarshal(body, into); err != nil {
		name := ""
		if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			name = e.Field
		}
		return faults{{"type_error", []any{"body", name}, fmt.Sprintf("Input has the wrong type: %v", err), nil}}
	}
	for _, name := range required {
		if string(fields[name]) == "null" {
			return faults{{"type_error", []any{"body", name}, "Input should not be null", nil}}
		}
	}
	return nil
}
