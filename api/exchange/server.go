// Package exchange contains the parts of an HTTP request that all APIs of the server share.
// It identifies the caller, checks and decodes the body, enforces limits of memory, rate
// and storage, repeats answers for an Idempotency-Key, maps errors to answers, and writes
// lists and event streams.
//
// The handlers of one API form a door: a struct with the services that they need. A door
// imports this package, but not package api.
package exchange

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/idempotency"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/project"
)

// Options are the parts of a server. Those without a default are required.
type Options struct {
	Keys     Keys
	Closed   bool // requests always need a key: the store had keys at the start
	Quota    *project.Quota
	EndUsers EndUsers             // nil: requests name no end users
	Space    Space                // nil means that disk space is not checked
	Repeats  *idempotency.Records // what requests with an Idempotency-Key have led to
	Observer Observer             // may be nil
	Log      *slog.Logger
	Memory   Memory
	Limits   Limits
	Tracer   trace.Tracer // of spans for requests; nil: none
	Origins  []string     // of web pages that may use the API, or "*"; see CORS

	// Used is told of each use of a key by a client. It must not block. Nil: nobody is told.
	Used func(k *berth.Key)

	// Read is told of each answer with the content of a stored file or of something like it: who read it, the container
	// of the path, and the id of the last thing in the path. It must not block. Nil: nobody is told.
	Read func(c berth.Caller, container berth.ContainerID, object, route string)

	// Placement knows the other servers of the cluster. A request for something that one of them has, such as a
	// container, is forwarded there, once. Default: cluster.Solo.
	Placement cluster.Placement

	// Secrets are the prefixes of paths that contain a secret. Of such a path, the log shows
	// only the prefix.
	Secrets []string

	// KeyCheck is how often the keys of running requests are checked; default 3 s.
	KeyCheck time.Duration
}

// Space knows the space of disks; *diskspace.Guard implements it.
type Space interface {
	Admit(areas ...diskspace.Area) error // refuses a request while space is low
}

// Memory limits the memory of requests. A nil pool has no limit.
type Memory struct {
	Readers  *ration.Pool // data read for answers
	Bodies   *ration.Pool // bodies, from before they are read until the answer is complete
	Decoding *ration.Pool // values decoded from bodies
}

// Limits are the limits of one request.
type Limits struct {
	MaxBody   int64         // of a JSON body, in bytes; default 64 MiB
	Patience  time.Duration // timeout of reads from and writes to a client; default 1 min
	KeepAlive time.Duration // idle time after which a stream sends a comment or a WebSocket a ping; default 15 s
}

// A Server holds the state that the requests of all doors share. It is safe for concurrent
// use.
type Server struct {
	Options
	open openness
	once once

	running running
	recents recents
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
	if opts.KeyCheck == 0 {
		opts.KeyCheck = 3 * time.Second
	}
	if opts.Placement == nil {
		opts.Placement = cluster.Solo{}
	}
	return &Server{Options: opts, open: openness{keys: opts.Keys, closed: opts.Closed},
		once: once{records: opts.Repeats, log: opts.Log}}
}

// Handler returns a handler that calls next for every request. It gives the request an id,
// answers in OpenAI's format if next panics, and logs the request.
func (s *Server) Handler(next func(x *Exchange, r *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := s.start(w, r)
		r = x.span.start(x, r)
		defer s.end(x, r)
		next(x, r)
	})
}

// As serves a request that the server itself makes for a caller, such as one of a batch. The
// request needs no key: it is served as if it had come with the caller's own, which must still
// be valid. Everything else is as in Handler.
func (s *Server) As(c berth.Caller, w http.ResponseWriter, r *http.Request, next func(x *Exchange, r *http.Request)) {
	x := s.start(w, r)
	x.known = true
	x.SetCaller(c)
	r = x.span.start(x, r)
	defer s.end(x, r)
	next(x, r)
}

// start returns the exchange of a request.
func (s *Server) start(w http.ResponseWriter, r *http.Request) *Exchange {
	x := &Exchange{ResponseWriter: w, server: s, start: time.Now(), requestID: berth.NewID(berth.PrefixRequest),
		clientID: r.Header.Get(clientRequestID), observed: observation{observer: s.Observer}}
	if f, ok := r.Context().Value(forwardedKey{}).(arrival); ok {
		x.relay.arrived = true
		if f.caller != nil {
			x.known = true
			x.SetCaller(*f.caller)
		}
	}
	w.Header().Set("x-request-id", x.requestID)
	w.Header().Set("openai-version", "2020-10-01")
	return x
}

// end logs the request. It also handles a panic of the handler.
func (s *Server) end(x *Exchange, r *http.Request) {
	if cause := recover(); cause == http.ErrAbortHandler {
		defer panic(cause) // the handler aborted the answer
	} else if cause != nil {
		s.Log.Error("handler panicked", "request_id", x.requestID, "panic", cause, "stack", string(debug.Stack()))
		if x.status != 0 {
			// Break the connection, or the client could take the partial answer for complete.
			defer panic(http.ErrAbortHandler)
		} else {
			x.answerError(nil)
		}
	}
	x.observed.end(r, x.status, time.Since(x.start))
	x.span.end(x, r)
	line := []slog.Attr{slog.String("method", r.Method), slog.String("path", s.pathForLog(r)),
		slog.Int("status", x.status),
		slog.Duration("duration", time.Since(x.start)), slog.String("project", string(x.caller.Project)),
		slog.String("key", string(x.caller.Key)), slog.String("request_id", x.requestID)}
	level := logLevel(r, x.status)
	if x.quiet {
		level = slog.LevelDebug
	}
	if x.clientID != "" && checkClientID(x.clientID) == nil {
		level = slog.LevelInfo // the client wants to find it
		line = append(line, slog.String("client_request_id", x.clientID))
	}
	s.Log.LogAttrs(r.Context(), level, "request", line...)
}

// LogQuietly logs the request at debug level, whatever its status: the handler logs the news.
func (x *Exchange) LogQuietly() { x.quiet = true }

// reads are the ends of paths of requests that change nothing, although their method is POST.
var reads = []string{"/filesystem.Filesystem/Stat", "/filesystem.Filesystem/ListDir", "/process.Process/List"}

// logLevel returns the level of a request's log line. Successful reads, such as health checks and
// polls, are no news.
func logLevel(r *http.Request, status int) slog.Level {
	read := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions ||
		slices.ContainsFunc(reads, func(end string) bool { return strings.HasSuffix(r.URL.Path, end) })
	if read && status < http.StatusBadRequest && status != http.StatusSwitchingProtocols {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// pathForLog returns the path of a request without a secret.
func (s *Server) pathForLog(r *http.Request) string {
	for _, prefix := range s.Secrets {
		if strings.HasPrefix(r.URL.Path, prefix) {
			return prefix
		}
	}
	return r.URL.Path
}

// clientRequestID is the header with a client's own id of its request. With it, the client
// can find a request in the log whose answer it has not received.
const clientRequestID = "X-Client-Request-Id"

// checkClientID refuses the ids that OpenAI refuses: those of more than 512 characters or
// with characters other than printable ASCII.
func checkClientID(id string) error {
	const most = 512
	if len(id) > most || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
		return berth.Errorf(berth.CodeInvalid, "Invalid '%s' header. Expected at most %d printable ASCII characters.",
			clientRequestID, most)
	}
	return nil
}

// Route returns the HTTP handler of a route. It identifies the caller, enforces the limits,
// runs the route's handler and answers with its error, if any. It works within Handler only.
func (s *Server) Route(rt Route) http.HandlerFunc {
	fail := rt.Fail
	if fail == nil {
		fail = (*Exchange).Fail
	}
	return func(w http.ResponseWriter, r *http.Request) {
		x := w.(*Exchange)
		x.observed.routed, x.writeError = true, rt.WriteError
		r.Pattern = rt.Pattern() // for metrics and traces
		if err := s.answer(x, r, rt); err != nil {
			fail(x, r, err)
		}
	}
}

// answer checks a request and runs the handler of its route. Its frame is part of every
// stack that serves a stream: variables needed only before the handler are in check.
func (s *Server) answer(x *Exchange, r *http.Request, rt Route) error {
	if rt.Is(Keyless) {
		return rt.Handle(x, r, berth.Caller{})
	}
	if err := s.check(x, r, &rt); err != nil {
		return err
	}
	r, done := x.WhileValid(r, x.caller)
	defer done()
	if forwarded, err := s.forwardPath(x, r); forwarded || err != nil {
		return err
	}
	project := x.caller.Project
	held := s.Memory.Readers.Open(string(project))
	defer held.Close()
	x.bodies, x.decoding = s.Memory.Bodies.Open(string(project)), s.Memory.Decoding.Open(string(project))
	defer x.bodies.Close()
	defer func() { x.decoding.Close() }() // HandOver may have replaced it
	r = r.WithContext(ration.With(berth.WithProject(r.Context(), project), held))
	release, err := s.reserve(x, r, rt, x.caller)
	if err != nil {
		return err
	}
	defer release()
	if rt.Method == http.MethodPost && r.Header.Get(idempotencyKey) != "" {
		err = s.once.handle(x, r, x.caller, rt)
	} else {
		err = s.run(x, r, x.caller, rt.Handle)
	}
	if rt.Is(ReadsContent) {
		s.noteRead(x, r, &rt)
	}
	if err != nil && errors.Is(context.Cause(r.Context()), errKeyEnded) {
		return errKeyEnded
	}
	return err
}

// noteRead tells of the content that a request has read. The server to which a request was forwarded tells of it.
func (s *Server) noteRead(x *Exchange, r *http.Request, rt *Route) {
	if s.Read == nil || r.Method == http.MethodHead || x.relay.sent ||
		x.status != http.StatusOK && x.status != http.StatusPartialContent {
		return
	}
	_, names, _ := strings.Cut(rt.Path, "{")
	var object string
	for name := range strings.SplitSeq(names, "{") {
		name, _, _ = strings.Cut(name, "}")
		if value := r.PathValue(name); name != "container" && value != "" {
			object = value
		}
	}
	s.Read(x.caller, berth.ContainerID(r.PathValue("container")), object, rt.Pattern())
}

// check identifies the caller of a request, sets it, and checks what does not depend on
// the body. It adds to rt what the route's Identity has found.
//
//go:noinline
func (s *Server) check(x *Exchange, r *http.Request, rt *Route) error {
	if rt.Limits != nil {
		rt.Traits |= rt.Limits(r)
	}
	if rt.Identity != nil {
		if err := s.visit(x, r, rt); err != nil {
			return err
		}
	} else if err := s.checkCall(x, r, rt); err != nil {
		return err
	}
	if err := s.checkSpace(r, *rt); err != nil {
		return err
	}
	return s.countWrite(x, r, *rt)
}

// visit identifies the caller of a request by the Identity of its route.
func (s *Server) visit(x *Exchange, r *http.Request, rt *Route) error {
	v, err := rt.Identity(x, r)
	if err != nil {
		return err
	}
	if v.Caller.Key != "" {
		if v.Caller, err = s.recent(r.Context(), v.Caller); err == nil {
			err = permit(v.Caller, rt)
		}
		if err != nil {
			return err
		}
	}
	x.SetCaller(v.Caller)
	rt.Handle = v.Handle
	rt.Traits |= v.Traits
	return s.CheckProject(r.Context(), v.Caller.Project)
}

// checkCall identifies the caller of a request by an API key, and checks what clients of the API send with each.
func (s *Server) checkCall(x *Exchange, r *http.Request, rt *Route) error {
	caller, err := s.identify(x, r, rt)
	if err != nil {
		return err
	}
	conns.Known(r.Context())
	x.SetCaller(caller)
	if err := checkClientID(x.clientID); err != nil {
		return err
	}
	if !rt.Is(ReadsQuery | ThroughContainer) {
		if err := NewQuery(r).End(); err != nil {
			return err
		}
	}
	if s.Quota != nil {
		x.rates = func(h http.Header) { s.writeRates(h, caller.Project) }
	}
	return nil
}

// LogFailure logs an error that is not the client's fault, unless the client is gone.
func (s *Server) LogFailure(ctx context.Context, requestID, path string, err error) {
	switch berth.ErrorCode(err) {
	case berth.CodeInsufficientStorage:
		// The disk guard has logged the cause once. More log lines would fill the disk further.
	case berth.CodeInternal, berth.CodeUpstream, berth.CodeUnavailable:
		if ctx.Err() == nil {
			s.Log.Error("request failed", "request_id", requestID, "path", path, "err", err)
		}
	}
}
