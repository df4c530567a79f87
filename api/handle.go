package api

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/internal/ration"
)

// A handler answers one request of a caller who has been identified. An error
// that it returns before it has written anything becomes the answer.
type handler func(s *server, w http.ResponseWriter, r *http.Request, c berth.Caller) error

// A route is one line of the table of contents. Method "" is any.
type route struct {
	method, path string
	handle       handler
}

func (rt route) pattern() string {
	if rt.method == "" {
		return rt.path
	}
	return rt.method + " " + rt.path
}

// ServeHTTP gives every request an id, an answer in OpenAI's shape whatever
// happens, and a line in the log.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, start: time.Now(), requestID: berth.NewID(berth.PrefixRequest),
		clientID: r.Header.Get(clientRequestID), observer: s.Observer, patience: s.Patience}
	w.Header().Set("x-request-id", x.requestID)
	w.Header().Set("openai-version", "2020-10-01")
	defer s.end(x, r)
	if !s.atHost(x, r) {
		s.mux.ServeHTTP(x, r)
	}
}

// end writes the line in the log, after a panic as well.
func (s *server) end(x *exchange, r *http.Request) {
	if cause := recover(); cause == http.ErrAbortHandler {
		defer panic(cause) // the answer was broken off on purpose
	} else if cause != nil {
		s.Log.Error("a handler panicked", "request_id", x.requestID, "panic", cause, "stack", string(debug.Stack()))
		if x.status != 0 {
			// What was sent looks whole to the client unless the connection breaks.
			defer panic(http.ErrAbortHandler)
		} else {
			x.fail(nil)
		}
	}
	x.observe(r)
	line := []slog.Attr{slog.String("method", r.Method), slog.String("path", pathForLog(r)), slog.Int("status", x.status),
		slog.Duration("duration", time.Since(x.start)), slog.String("project", string(x.caller.Project)),
		slog.String("key", string(x.caller.Key)), slog.String("request_id", x.requestID)}
	if x.clientID != "" && checkClientID(x.clientID) == nil {
		line = append(line, slog.String("client_request_id", x.clientID))
	}
	s.Log.LogAttrs(r.Context(), slog.LevelInfo, "request", line...)
}

// pathForLog is a request's path without what may be a permission in it.
func pathForLog(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, linkPath) {
		return linkPath
	}
	return r.URL.Path
}

// clientRequestID is the header in which a client names its request, to find it
// in the log when no answer has told the server's own name for it.
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

// answer runs a handler for its caller and turns its error into the answer.
func (s *server) answer(w http.ResponseWriter, r *http.Request, h handler) {
	x := w.(*exchange)
	caller, err := s.identify(r)
	if err == nil {
		conns.Known(r.Context())
		caller.RequestID = x.requestID
		x.caller = caller
		err = checkClientID(x.clientID)
	}
	if err == nil {
		err = s.admit(r)
	}
	if err == nil && s.Quota != nil {
		x.rates = func(h http.Header) { s.writeRates(h, caller.Project) }
	}
	held := s.Readers.Open(string(caller.Project))
	defer held.Close()
	x.bodies, x.decoding = s.Bodies.Open(string(caller.Project)), s.Decoding.Open(string(caller.Project))
	defer x.bodies.Close()
	defer func() { x.decoding.Close() }() // another one may have it by then
	r = r.WithContext(ration.With(r.Context(), held))
	if err == nil {
		var release func()
		if release, err = s.reserve(x, r, caller); err == nil {
			defer release()
		}
	}
	switch {
	case err != nil:
	case strings.HasPrefix(r.Pattern, "POST ") && r.Header.Get(idempotencyKey) != "":
		err = s.once(x, r, caller, h)
	default:
		err = h(s, w, r, caller)
	}
	if err == nil {
		return
	}
	s.logFailure(r.Context(), x.requestID, r.URL.Path, err)
	if x.status == 0 {
		x.fail(err)
	}
}

// logFailure logs an error that is not the client's, unless the client has gone.
func (s *server) logFailure(ctx context.Context, requestID, path string, err error) {
	switch berth.ErrorCode(err) {
	case berth.CodeInsufficientStorage:
		// The guard of the disk has logged why, once; refusals must not fill it further.
	case berth.CodeInternal, berth.CodeUpstream, berth.CodeUnavailable:
		if ctx.Err() == nil {
			s.Log.Error("a request failed", "request_id", requestID, "path", path, "err", err)
		}
	}
}

// fallback answers what no route takes: 405 for a path that exists, 404 else.
func (s *server) fallback(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := s.mux.Handler(&probe); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if allowed == nil {
		writeError(w, http.StatusNotFound, wireError{Type: typeInvalid,
			Message: "Invalid URL (" + r.Method + " " + r.URL.Path + ")"})
		return
	}
	methods := strings.Join(allowed, ", ")
	w.Header().Set("Allow", methods)
	writeError(w, http.StatusMethodNotAllowed, wireError{Type: typeInvalid, Code: orNull("method_not_supported"),
		Message: "Invalid method for URL (" + r.Method + " " + r.URL.Path + "). Allowed: " + methods + "."})
}

// An exchange is one request and what was answered to it.
type exchange struct {
	http.ResponseWriter
	start     time.Time
	requestID string
	clientID  string        // the client's own name for the request
	caller    berth.Caller  // zero until identified
	status    int           // 0 until the header is written
	patience  time.Duration // with a client that does not read

	bodies, decoding *ration.Account // of its body, and of what is made of that
	body             []byte          // that has been read and not decoded; nil if none

	room func(ctx context.Context, bytes int64) error // reserves more of the project's storage

	observer Observer
	closed   func() // tells it that an answer which lasts has ended; may be nil

	rates func(http.Header) // adds what the caller has left of its rates; may be nil
}

// settle gives back what decoding and saving a request took beyond what goes on to be
// used of it.
func settle(w http.ResponseWriter) {
	if x, ok := w.(*exchange); ok {
		x.decoding.Return(x.decoding.Needs() / 2)
	}
}

// handOver gives what an exchange holds for its decoded request to the run that it
// asks for: hold is for engine.Holding. release gives it back if no run has started.
func handOver(w http.ResponseWriter) (hold func() func(), release func()) {
	x, ok := w.(*exchange)
	if !ok {
		return nil, func() {}
	}
	held := x.decoding
	return func() func() {
			settle(w)
			x.decoding = nil
			return held.Close
		}, func() {
			x.decoding.Close()
			x.decoding = nil
		}
}

// Unwrap serves http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// Hijack gives the connection away, for another protocol.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err == nil && x.status == 0 {
		x.status = http.StatusSwitchingProtocols
		x.stays(x.status)
	}
	return conn, buffered, err
}

func (x *exchange) WriteHeader(status int) {
	if status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return // an interim answer of a guest, to whom it means nothing
	}
	if x.status == 0 {
		x.status = status
		x.Header().Set("openai-processing-ms", strconv.FormatInt(time.Since(x.start).Milliseconds(), 10))
		if x.rates != nil {
			x.rates(x.Header())
		}
		x.stays(status)
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	return x.ResponseWriter.Write(p)
}

// fail answers with an error; a nil one is an internal error.
func (x *exchange) fail(err error) {
	status, e := describe(err, x.requestID)
	if status == http.StatusInsufficientStorage {
		writeRetry(x.Header(), diskspace.RetryAfter)
	} else if e, ok := errors.AsType[*berth.Error](err); ok {
		writeRetry(x.Header(), e.RetryAfter)
	}
	writeError(x, status, e)
}
