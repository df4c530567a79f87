package exchange

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/internal/ration"
)

// An Exchange is one request and its answer. It is the http.ResponseWriter that the
// request's handler writes to.
type Exchange struct {
	http.ResponseWriter
	server    *Server
	start     time.Time
	requestID string
	clientID  string       // the client's own name for the request
	caller    berth.Caller // zero until identified
	status    int          // 0 until the header is written

	bodies, decoding *ration.Account // of its body, and of what is decoded from that
	body             []byte          // that has been read and not decoded; nil if none

	room func(ctx context.Context, bytes int64) error // reserves more of the project's storage

	closed func()            // tells the observer that an answer which lasts has ended; may be nil
	rates  func(http.Header) // adds what the caller has left of its rates; may be nil
}

// RequestID returns the server's name for the request.
func (x *Exchange) RequestID() string { return x.requestID }

// Started reports whether the answer has been started: its status cannot change then.
func (x *Exchange) Started() bool { return x.status != 0 }

// SetCaller records who the caller is, and returns it with the request's id.
func (x *Exchange) SetCaller(c berth.Caller) berth.Caller {
	c.RequestID = x.requestID
	x.caller = c
	return c
}

// Settle returns the memory that decoding and saving a request took beyond what is
// still used of it.
func (x *Exchange) Settle() { x.decoding.Return(x.decoding.Needs() / 2) }

// HandOver passes what the exchange holds for its decoded request to the run that it
// starts: hold is for engine.Holding. release returns it if no run has started.
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

// Unwrap serves http.ResponseController.
func (x *Exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// Hijack implements http.Hijacker: it gives the connection away, for another protocol.
func (x *Exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(x.ResponseWriter).Hijack()
	if err == nil && x.status == 0 {
		x.status = http.StatusSwitchingProtocols
		x.opened(x.status)
	}
	return conn, buffered, err
}

// WriteHeader implements http.ResponseWriter. It drops interim answers, which come from
// what runs in a container and mean nothing to the client.
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
		x.opened(status)
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *Exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	return x.ResponseWriter.Write(p)
}

// Fail logs an error that is this server's and answers with it, unless the answer has
// been started. path is what the log says of the request's path.
func (x *Exchange) Fail(ctx context.Context, path string, err error) {
	x.server.LogFailure(ctx, x.requestID, path, err)
	if x.status == 0 {
		x.answerError(err)
	}
}

// FailQuietly answers with an error of what runs in a sandbox, which is not this
// server's: its log shows it only at debug level. It returns any other error.
func (x *Exchange) FailQuietly(err error) error {
	if berth.ErrorCode(err) != berth.CodeUpstream || x.status != 0 {
		return err
	}
	x.server.Log.Debug("port did not answer", "request_id", x.requestID, "err", err)
	x.answerError(err)
	return nil
}

// answerError answers with an error; a nil one is an internal error.
func (x *Exchange) answerError(err error) {
	status, e := Describe(err, x.requestID)
	if status == http.StatusInsufficientStorage {
		writeRetry(x.Header(), diskspace.RetryAfter)
	} else if e, ok := errors.AsType[*berth.Error](err); ok {
		writeRetry(x.Header(), e.RetryAfter)
	}
	x.Error(status, e)
}

// Abort breaks the connection of an answer that failed after it was started, so that
// half of it cannot be taken for all of it.
func (x *Exchange) Abort(err error) {
	x.server.Log.Warn("answer aborted", "request_id", x.requestID, "err", err)
	panic(http.ErrAbortHandler)
}

// HeaderHas reports whether a header's list has a token.
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
