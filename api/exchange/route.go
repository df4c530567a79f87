package exchange

import (
	"context"
	"net/http"
	"strings"

	"github.com/berth-run/berth"
)

// A Handler answers one request of an identified caller. An error that it returns before
// the answer has started becomes the answer.
type Handler func(x *Exchange, r *http.Request, c berth.Caller) error

// A Route is an endpoint. An empty Method means any method.
type Route struct {
	Method, Path string
	Handle       Handler
	Traits       Traits

	// WriteError answers with an error in the form of the route's API. Nil is OpenAI's form.
	WriteError func(x *Exchange, status int, e Error)
}

// Traits select the limits of a route. By default, a request that is not a GET or DELETE
// counts against its project's request rate and storage, and a POST is refused while disk
// space is low.
type Traits uint16

const (
	CallsModel       Traits = 1 << iota // the engine counts the request rate, per response
	StoresNothing                       // allowed while the project's storage is full
	StoresLittle                        // allowed while disk space is low
	StoresAsItComes                     // storage is counted while the body arrives
	ThroughContainer                    // forwarded to a container, which has limits of its own
	NamesResponse                       // creates one response, whose id an Idempotency-Key determines
	ReadsQuery                          // checks its query itself; other routes have no parameters
	ForAdmin                            // refuses keys of projects
	AlsoForAdmin                        // accepts admin keys beside those of projects
	// the key may be in X-API-Key, as E2B's clients send it; nothing may be forwarded to a container
	KeyInHeader
)

// On returns the route of a pattern of http.ServeMux.
func On(pattern string, h Handler, traits ...Traits) Route {
	rt := Route{Path: pattern, Handle: h}
	if method, path, ok := strings.Cut(pattern, " "); ok {
		rt.Method, rt.Path = method, path
	}
	for _, t := range traits {
		rt.Traits |= t
	}
	return rt
}

// Pattern returns the pattern of the route for an http.ServeMux.
func (rt Route) Pattern() string {
	if rt.Method == "" {
		return rt.Path
	}
	return rt.Method + " " + rt.Path
}

// Is reports whether the route has at least one of the traits.
func (rt Route) Is(t Traits) bool { return rt.Traits&t != 0 }

// checkSpace refuses a request that stores data while disk space is low.
func (s *Server) checkSpace(rt Route) error {
	if s.Space == nil || rt.Method != http.MethodPost || rt.Is(StoresLittle) {
		return nil
	}
	return s.Space.Admit()
}

// reserve checks the limits of a request before its body is read. The caller must call
// release when the request has been answered.
func (s *Server) reserve(x *Exchange, r *http.Request, rt Route, c berth.Caller) (release func(), err error) {
	x.room = func(context.Context, int64) error { return nil }
	if s.Quota == nil || rt.Is(ThroughContainer) || rt.Method == http.MethodGet || rt.Method == http.MethodDelete {
		return func() {}, nil
	}
	if !rt.Is(CallsModel) && !x.forwarded { // the server that forwarded it has counted it
		if err := s.Quota.Write(r.Context(), c.Project); err != nil {
			return nil, err
		}
	}
	if rt.Is(StoresNothing) {
		return func() {}, nil
	}
	var held []func()
	x.room = func(ctx context.Context, bytes int64) error {
		release, err := s.Quota.Reserve(ctx, c.Project, bytes)
		if err == nil {
			held = append(held, release)
		}
		return err
	}
	release = func() {
		for _, f := range held {
			f()
		}
	}
	bytes := max(r.ContentLength, 0)
	if isForm(r) || rt.Is(StoresAsItComes) {
		bytes = 0 // the services count it while it arrives
	}
	return release, x.room(r.Context(), bytes)
}

// CountWrite counts a request without a route that changes something towards the rate of a project, as Route does. It
// refuses the request above the rate.
func (x *Exchange) CountWrite(ctx context.Context, p berth.ProjectID) error {
	s := x.server
	if s.Quota == nil || x.forwarded { // the server that forwarded it has counted it
		return nil
	}
	return s.Quota.Write(ctx, p)
}

func isForm(r *http.Request) bool {
	return strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "multipart/form-data")
}
