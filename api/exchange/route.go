package exchange

import (
	"context"
	"net/http"
	"strings"

	"github.com/berth-run/berth"
)

// A Handler answers one request of a caller who has been identified. An error that it
// returns before it has started the answer becomes the answer.
type Handler func(x *Exchange, r *http.Request, c berth.Caller) error

// A Route is one line of a table of contents. Method "" is any.
type Route struct {
	Method, Path string
	Handle       Handler
	Traits       Traits
}

// Traits say which bounds a route has. Without any, a request that changes something
// counts against the requests in a minute and the storage of its project, and is refused
// while disk space is low.
type Traits uint8

const (
	AsksModel        Traits = 1 << iota // the engine counts its requests, one for each response
	StoresNothing                       // served although the storage of the project is full
	StoresLittle                        // served although disk space is low
	StoresAsItComes                     // what it stores is counted while the body arrives
	ThroughContainer                    // goes to what runs in a container, which has limits of its own
	NamesResponse                       // makes one response, of the name that an Idempotency-Key gives it
	ReadsQuery                          // checks its query itself; other routes have no parameters
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

// Is reports whether the route has one of these traits.
func (rt Route) Is(t Traits) bool { return rt.Traits&t != 0 }

// checkSpace refuses a request that would store something while disk space is low.
func (s *Server) checkSpace(rt Route) error {
	if s.Space == nil || rt.Method != http.MethodPost || rt.Is(StoresLittle) {
		return nil
	}
	return s.Space.Admit()
}

// reserve checks the bounds of a request before its body is read. release must be called
// when it has been answered.
func (s *Server) reserve(x *Exchange, r *http.Request, rt Route, c berth.Caller) (release func(), err error) {
	x.room = func(context.Context, int64) error { return nil }
	if s.Quota == nil || rt.Is(ThroughContainer) || rt.Method == http.MethodGet || rt.Method == http.MethodDelete {
		return func() {}, nil
	}
	if !rt.Is(AsksModel) {
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
		bytes = 0 // what is stored of it is counted as it comes in
	}
	return release, x.room(r.Context(), bytes)
}

func isForm(r *http.Request) bool {
	return strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "multipart/form-data")
}
