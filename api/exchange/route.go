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

// A Route is an endpoint: an entry of the table of a server. An empty Method means any method.
type Route struct {
	Method, Path string // with Host or Select, Path is only the name of the route in metrics and traces
	Handle       Handler
	Traits       Traits

	// Permission is what the caller needs, one of several if it is a sum. A route without one refuses everyone.
	Permission berth.Permission

	// Host reports whether the route serves a host, with all its paths, instead of the API.
	Host func(host string) bool

	// Select reports whether the route serves a request to a host of the API, whatever its path: because of a header or
	// of the query.
	Select func(r *http.Request) bool

	// Identity identifies the caller. Nil is an API key.
	Identity Identity

	// Limits returns the limits of one request, beside those of the route. Nil adds none.
	Limits func(r *http.Request) Traits

	// WriteError answers with an error in the form of the route's API. Nil is OpenAI's form.
	WriteError func(x *Exchange, status int, e Error)

	// Fail answers a request that failed. Nil is Exchange.Fail.
	Fail func(x *Exchange, r *http.Request, err error)
}

// An Identity identifies the caller of a request by something else than an API key, such as the token of a sandbox or
// a signed URL. The key that it was made for must have the permission of the route. It must not read the
// body. It calls conns.Known if the client has proved that it may send the request.
type Identity func(x *Exchange, r *http.Request) (Visit, error)

// A Visit is a request that an Identity admits.
type Visit struct {
	Caller berth.Caller // with the key that the token or the URL was made for; none lets everyone visit
	Handle Handler
	Traits Traits // of this request, beside those of the route
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
	// the key may be in X-API-Key, as E2B's clients send it; nothing may be forwarded to a container
	KeyInHeader
	Keyless // serves everyone, without an identity and limits
	// answers with the content of a stored file or of something like it, of which Options.Read is told
	ReadsContent
	// not for pages of Options.Origins: the answer is that of a program in a container, or a page of this server
	NoCORS
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

// Public returns the route of a handler that needs no identity.
func Public(pattern string, serve http.HandlerFunc, traits ...Traits) Route {
	return On(pattern, func(x *Exchange, r *http.Request, _ berth.Caller) error {
		serve(x, r)
		return nil
	}, append(traits, Keyless)...)
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
func (s *Server) checkSpace(r *http.Request, rt Route) error {
	if s.Space == nil || rt.Is(StoresLittle|ThroughContainer) || !stores(r, rt) {
		return nil
	}
	return s.Space.Admit()
}

// stores reports whether a request stores data by its method. An identity may also admit a PUT that does.
func stores(r *http.Request, rt Route) bool {
	return r.Method == http.MethodPost || r.Method == http.MethodPut && rt.Identity != nil
}

// changes reports whether a request counts against the rate and the storage of its project.
func changes(r *http.Request, rt Route) bool {
	return !rt.Is(ThroughContainer) && r.Method != http.MethodGet && r.Method != http.MethodHead &&
		r.Method != http.MethodDelete
}

// countWrite counts a request towards the rate of its project and refuses it above that.
func (s *Server) countWrite(x *Exchange, r *http.Request, rt Route) error {
	if s.Quota == nil || rt.Is(CallsModel) || !changes(r, rt) || x.relay.arrived {
		return nil // the server that forwarded it has counted it
	}
	return s.Quota.Write(r.Context(), x.caller.Project)
}

// reserve checks the storage that a request needs before its body is read. The caller must call
// release when the request has been answered.
func (s *Server) reserve(x *Exchange, r *http.Request, rt Route, c berth.Caller) (release func(), err error) {
	x.room = func(context.Context, int64) error { return nil }
	if s.Quota == nil || rt.Is(StoresNothing) || !changes(r, rt) {
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

func isForm(r *http.Request) bool {
	return strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "multipart/form-data")
}
