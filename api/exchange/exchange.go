package exchange

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/internal/ration"
)

// An Exchange is one request and its answer. It is the http.ResponseWriter of the request's
// handler.
type Exchange struct {
	http.ResponseWriter
	server    *Server
	start     time.Time
	requestID string
	clientID  string       // the client's id of the request; see clientRequestID
	caller    berth.Caller // zero until identified
	known     bool         // the caller is that of Server.As, or of a forwarded request
	status    int          // 0 until the header is written

	bodies, decoding *ration.Account // memory of the body and of the values decoded from it
	body             []byte          // the body, if it has been read but not decoded
	relay            relay           // to another server

	room func(ctx context.Context, bytes int64) error // reserves more of the project's storage

	rates func(http.Header) // adds the headers of the caller's rate limits; may be nil
	final func(http.Header) // see OnHeader; may be nil
	quiet bool              // see LogQuietly

	writeError func(x *Exchange, status int, e Error) // see Route

	observed observation
	span     requestSpan
}

// RequestID returns the server's id of the request.
func (x *Exchange) RequestID() string { return x.requestID }

// Started reports whether the header of the answer has been written.
func (x *Exchange) Started() bool { return x.status != 0 }

// SetCaller sets the caller of the exchange. It returns the caller with the request's id.
func (x *Exchange) SetCaller(c berth.Caller) berth.Caller {
	c.RequestID = x.requestID
	x.caller = c
	return c
}

// Settle releases the memory reserved for decoding and saving a request, except the half
// for the request itself.
func (x *Exchange) Settle() { x.decoding.Return(x.decoding.Needs() / 2) }

// HandOver transfers the memory reserved for the decoded request to the run that the
// handler starts. hold is the argument of engine.Holding. The handler must call release,
// which releases the memory if no run has started.
func (x *Exchange) HandOver() (hold func() func(), release func()) {
	held := x.decoding
	return func() func() {
			x.Settle()
			x.decoding = nil
			return held.Close
		}, func() {
			x.decoding.Close()
			x.decoding = nil
		}
}

// Unwrap is called by http.ResponseController.
func (x *Exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// Hijack implements http.Hijacker. It counts the answer as a switch of protocols.
func (x *Exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, fmt.Errorf("take over the connection: %w", err)
	}
	if x.status == 0 {
		x.status = http.StatusSwitchingProtocols
		x.observed.start(x.status, x.Header())
	}
	return conn, buffered, nil
}

// WriteHeader implements http.ResponseWriter. It drops interim (1xx) answers, which come
// from programs in containers and have no meaning for the client.
func (x *Exchange) WriteHeader(status int) {
	if status < http.StatusOK && status != http.StatusSwitchingProtocols {
		return
	}
	if x.status == 0 {
		x.status = status
		x.Header().Set("openai-processing-ms", strconv.FormatInt(time.Since(x.start).Milliseconds(), 10))
		if x.rates != nil {
			x.rates(x.Header())
		}
		if x.final != nil {
			x.final(x.Header())
		}
		x.observed.start(status, x.Header())
	}
	x.ResponseWriter.WriteHeader(status)
}

// OnHeader calls f with the header of the answer before it is sent.
func (x *Exchange) OnHeader(f func(http.Header)) { x.final = f }

func (x *Exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	return x.ResponseWriter.Write(p)
}

// Fail answers with an error, unless the answer has started. If it is the server's fault,
// Fail also logs it.
func (x *Exchange) Fail(r *http.Request, err error) {
	x.server.LogFailure(r.Context(), x.requestID, x.server.pathForLog(r), err)
	if x.status == 0 {
		x.answerError(err)
	}
}

// FailQuietly answers with an error of a program in a sandbox (CodeUpstream) and logs it at
// debug level only, because it is not a fault of this server. It returns any other error.
func (x *Exchange) FailQuietly(err error) error {
	if berth.ErrorCode(err) != berth.CodeUpstream || x.status != 0 {
		return err
	}
	x.server.Log.Debug("port did not answer", "request_id", x.requestID, "err", err)
	x.answerError(err)
	return nil
}

// unavailableRetry is when clients are to retry while the database is not available.
const unavailableRetry = 2 * time.Second

// answerError answers with an error. A nil error is answered as an internal error.
func (x *Exchange) answerError(err error) {
	status, e := Describe(err, x.requestID)
	if status == http.StatusInsufficientStorage {
		writeRetry(x.Header(), diskspace.RetryAfter)
	} else if errors.Is(err, berth.ErrUnavailable) {
		writeRetry(x.Header(), unavailableRetry)
	} else if e, ok := errors.AsType[*berth.Error](err); ok {
		writeRetry(x.Header(), e.RetryAfter)
	}
	if x.writeError != nil {
		x.writeError(x, status, e)
		return
	}
	x.Error(status, e)
}

// Abort breaks the connection of an answer that failed after its start, so that the client
// does not mistake a part for the whole.
func (x *Exchange) Abort(err error) {
	x.server.Log.Warn("answer aborted", "request_id", x.requestID, "err", err)
	panic(http.ErrAbortHandler)
}

// Break is Abort for an error of which the log has no line unless it is the server's fault.
func (x *Exchange) Break(r *http.Request, err error) {
	x.server.LogFailure(r.Context(), x.requestID, x.server.pathForLog(r), err)
	panic(http.ErrAbortHandler)
}

// HeaderHas reports whether a header that is a list of tokens contains a token.
func HeaderHas(h http.Header, header, token string) bool {
	for _, line := range h.Values(header) {
		for word := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(word), token) {
				return true
			}
		}
	}
	return false
}
