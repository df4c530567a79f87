package exchange

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
)

type forwardedKey struct{}

// Forwarded returns a context for a request that another server has forwarded, which has
// identified its caller. The caller may be nil.
func Forwarded(ctx context.Context, caller *berth.Caller) context.Context {
	return context.WithValue(ctx, forwardedKey{}, arrival{caller})
}

type arrival struct{ caller *berth.Caller }

// IsForwarded reports whether another server has forwarded the request of a context.
func IsForwarded(ctx context.Context) bool {
	_, ok := ctx.Value(forwardedKey{}).(arrival)
	return ok
}

// A relay is what an exchange needs to send its request to another server.
type relay struct {
	arrived bool                                           // another server has sent it; it stays here
	body    []byte                                         // decoded, if it was read and may be sent
	before  func(ctx context.Context, server string) error // called before the request is sent; may be nil
	sent    bool                                           // this server has sent it to another one
}

// can reports whether the request can still be sent.
func (l *relay) can(r *http.Request) bool {
	return !l.arrived && (l.body != nil || r.ContentLength == 0)
}

// again returns a copy of the request, whose body has been read, for another server.
func (l *relay) again(r *http.Request) *http.Request {
	again := r.Clone(r.Context())
	again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(l.body)), int64(len(l.body))
	again.Header.Del("Content-Encoding") // it was decoded
	return again
}

// forwardPath forwards a request whose path has a container of another server.
func (s *Server) forwardPath(x *Exchange, r *http.Request) (done bool, err error) {
	id := berth.ContainerID(r.PathValue("container"))
	if id == "" {
		return false, nil
	}
	return x.toContainer(r, x.caller.Project, id, &x.caller)
}

// ToContainer forwards a request without an identified caller, whose body has not been read, to the server that
// runs a container. It reports false if that is this server or none.
func (x *Exchange) ToContainer(r *http.Request, p berth.ProjectID, id berth.ContainerID) (done bool, err error) {
	return x.toContainer(r, p, id, nil)
}

func (x *Exchange) toContainer(r *http.Request, p berth.ProjectID, id berth.ContainerID, c *berth.Caller) (done bool,
	err error) {
	placement := x.server.Placement
	place, err := placement.Where(r.Context(), cluster.Object{Project: p, Container: id}, cluster.Use)
	if err != nil || place.Server == "" {
		return false, err
	}
	if x.relay.arrived {
		return false, cluster.Elsewhere("Container with id '"+string(id)+"'", place.Server)
	}
	return true, placement.Forward(x, r, c, place.Server)
}

// run runs the handler of a route. If what the request needs is on another server, run
// forwards the request.
func (s *Server) run(x *Exchange, r *http.Request, c berth.Caller, h Handler) error {
	err := h(x, r, c)
	server := ServerFor(err)
	if server == "" || x.Started() || !x.relay.can(r) {
		return err
	}
	if x.relay.before != nil {
		if err := x.relay.before(r.Context(), server); err != nil {
			return err
		}
	}
	x.relay.sent = true
	again := x.relay.again(r)
	again.Header.Del(idempotencyKey) // this server has handled it; c has the response's id
	return s.Placement.Forward(x, again, &c, server)
}

// ServerFor returns the server that an ElsewhereError in err names, or "".
func ServerFor(err error) string {
	if e, ok := errors.AsType[*cluster.ElsewhereError](err); ok {
		return e.Server
	}
	return ""
}

// Elsewhere forwards a request without an identified caller, whose body has not been read,
// if err means that another server has what it needs. It returns any other error.
func (x *Exchange) Elsewhere(r *http.Request, err error) error {
	server := ServerFor(err)
	if server == "" || x.relay.arrived || x.Started() {
		return err
	}
	return x.server.Placement.Forward(x, r, nil, server)
}
