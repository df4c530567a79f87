// Package exchange serves one HTTP request, whichever door it comes through: it
// identifies the caller, decodes the body by rule, holds the bounds of memory, rate and
// storage, answers a repeated request again, turns errors into answers, and writes lists
// and streams of events.
//
// A door is a struct with handlers. It needs this package and the services that it
// serves, and nothing of package api.
package exchange

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/project"
	"github.com/berth-run/berth/store"
)

// Options are the parts of a server. Those without a default are required.
type Options struct {
	Keys     store.Keys
	Closed   bool // there were keys when the server started: it never serves without one
	Quota    *project.Quota
	Space    *diskspace.Guard // default: space is not checked
	Objects  store.Objects    // of answers that are stored for an Idempotency-Key
	Observer Observer         // default none
	Log      *slog.Logger
	Memory   Memory
	Limits   Limits

	// Secret is a prefix of paths that hold a permission: the log shows it alone.
	Secret string
}

// Memory bounds the memory of requests. A nil pool has no bound.
type Memory struct {
	Readers  *ration.Pool // what is read to be sent
	Bodies   *ration.Pool // bodies, from before they are read until the answer has been sent
	Decoding *ration.Pool // what is decoded from them
}

// Limits are the limits of one request.
type Limits struct {
	MaxBody   int64         // of a JSON body, in bytes; default 64 MiB
	Patience  time.Duration // with a client that neither sends nor reads when it should; default 1 min
	KeepAlive time.Duration // the silence after which a stream sends a comment, a socket a ping; default 15 s
}

// Server is what the requests of all doors have in common. It is safe for concurrent use.
type Server struct {
	Options
	open openness
	once idempotency
}

// New returns a server.
func New(opts Options) *Server {
	if opts.Limits.MaxBody == 0 {
		opts.Limits.MaxBody = 64 << 20
	}
	if opts.Limits.Patience == 0 {
		opts.Limits.Patience = time.Minute
	}
	if opts.Limits.KeepAlive == 0 {
		opts.Limits.KeepAlive = 15 * time.Second
	}
	if opts.Observer == nil {
		opts.Observer = noObserver{}
	}
	return &Server{Options: opts, open: openness{keys: opts.Keys, closed: opts.Closed},
		once: idempotency{objects: opts.Objects, log: opts.Log}}
}

// Handler returns a handler that gives every request an id, an answer in OpenAI's shape
// whatever happens, and a line in the log.
func (s *Server) Handler(next func(x *Exchange, r *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := s.begin(w, r)
		defer s.end(x, r)
		next(x, r)
	})
}

// begin returns the exchange of a request.
func (s *Server) begin(w http.ResponseWriter, r *http.Request) *Exchange {
	x := &Exchange{ResponseWriter: w, server: s, start: time.Now(), requestID: berth.NewID(berth.PrefixRequest),
		clientID: r.Header.Get(clientRequestID)}
	w.Header().Set("x-request-id", x.requestID)
	w.Header().Set("openai-version", "2020-10-01")
	return x
}

// end writes the line in the log, after a panic as well.
func (s *Server) end(x *Exchange, r *http.Request) {
	if cause := recover(); cause == http.ErrAbortHandler {
		defer panic(cause) // the answer was broken off on purpose
	} else if cause != nil {
		s.Log.Error("handler panicked", "request_id", x.requestID, "panic", cause, "stack", string(debug.Stack()))
		if x.status != 0 {
			// What was sent looks complete to the client unless the connection breaks.
			defer panic(http.ErrAbortHandler)
		} else {
			x.answerError(nil)
		}
	}
	x.observe(r)
	line := []slog.Attr{slog.String("method", r.Method), slog.String("path", s.pathForLog(r)), slog.Int("status", x.status),
		slog.Duration("duration", time.Since(x.start)), slog.String("project", string(x.caller.Project)),
		slog.String("key", string(x.caller.Key)), slog.String("request_id", x.requestID)}
	if x.clientID != "" && checkClientID(x.clientID) == nil {
		line = append(line, slog.String("client_request_id", x.clientID))
	}
	s.Log.LogAttrs(r.Context(), slog.LevelInfo, "request", line...)
}

// pathForLog returns a request's path without a permission that it may hold.
func (s *Server) pathForLog(r *http.Request) string {
	if s.Secret != "" && strings.HasPrefix(r.URL.Path, s.Secret) {
		return s.Secret
	}
	return r.URL.Path
}

// clientRequestID is the header in which a client names its request, to find it in the
// log when it has not received the server's own name for it.
const clientRequestID = "X-Client-Request-Id"

// checkClientID refuses a name that OpenAI refuses: of more than 512 characters,
// or of others than printable ASCII.
func checkClientID(id string) error {
	const most = 512
	if len(id) > most || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
		return berth.Errorf(berth.CodeInvalid, "Invalid '%s' header: it must be at most %d characters of ASCII.", clientRequestID, most)
	}
	return nil
}

// Route returns the handler of a route. It identifies the caller, holds the bounds, runs
// the route's handler and turns its error into the answer. It must be called below Handler.
func (s *Server) Route(rt Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := w.(*Exchange)
		if err := s.answer(x, r, rt); err != nil {
			x.Fail(r.Context(), r.URL.Path, err)
		}
	}
}

// answer runs the handler of a route for its caller.
func (s *Server) answer(x *Exchange, r *http.Request, rt Route) error {
	caller, err := s.Identify(r)
	if err == nil {
		conns.Known(r.Context())
		caller = x.SetCaller(caller)
		err = checkClientID(x.clientID)
	}
	if err == nil && !rt.Is(ReadsQuery|ThroughContainer) {
		err = NewQuery(r).End()
	}
	if err == nil {
		err = s.checkSpace(rt)
	}
	if err != nil {
		return err
	}
	if s.Quota != nil {
		x.rates = func(h http.Header) { s.writeRates(h, caller.Project) }
	}
	held := s.Memory.Readers.Open(string(caller.Project))
	defer held.Close()
	x.bodies, x.decoding = s.Memory.Bodies.Open(string(caller.Project)), s.Memory.Decoding.Open(string(caller.Project))
	defer x.bodies.Close()
	defer func() { x.decoding.Close() }() // a run may have taken it over by then
	r = r.WithContext(ration.With(r.Context(), held))
	release, err := s.reserve(x, r, rt, caller)
	if err != nil {
		return err
	}
	defer release()
	if rt.Method == http.MethodPost && r.Header.Get(idempotencyKey) != "" {
		return s.once.handle(x, r, caller, rt)
	}
	return rt.Handle(x, r, caller)
}

// LogFailure logs an error that is not the client's, unless the client has gone.
func (s *Server) LogFailure(ctx context.Context, requestID, path string, err error) {
	switch berth.ErrorCode(err) {
	case berth.CodeInsufficientStorage:
		// The guard of the disk has logged why, once; refusals must not fill it further.
	case berth.CodeInternal, berth.CodeUpstream, berth.CodeUnavailable:
		if ctx.Err() == nil {
			s.Log.Error("request failed", "request_id", requestID, "path", path, "err", err)
		}
	}
}

// Fallback answers requests for which mux has no route: 405 for a path that exists, 404
// otherwise.
func Fallback(mux *http.ServeMux) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			probe := http.Request{Method: method, URL: r.URL, Host: r.Host}
			if _, pattern := mux.Handler(&probe); pattern != "/" {
				allowed = append(allowed, method)
			}
		}
		if allowed == nil {
			writeError(w, http.StatusNotFound, Error{Type: TypeInvalid,
				Message: "This server does not serve " + r.Method + " " + r.URL.Path + "."})
			return
		}
		methods := strings.Join(allowed, ", ")
		w.Header().Set("Allow", methods)
		writeError(w, http.StatusMethodNotAllowed, Error{Type: TypeInvalid, Code: OrNull("method_not_supported"),
			Message: "Invalid method for URL (" + r.Method + " " + r.URL.Path + "). Allowed: " + methods + "."})
	}
}
