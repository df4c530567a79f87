package exchange

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"syscall"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// The types of an error on the wire, as OpenAI names them.
const (
	TypeInvalid   = "invalid_request_error"
	TypeRateLimit = "rate_limit_error"
	TypeServer    = "server_error"
)

// statuses is the one table from codes to the status of HTTP and the words of the wire.
var statuses = map[berth.Code]struct {
	status   int
	wireType string
	wireCode string // unless the error brings its own
}{
	berth.CodeInvalid:             {http.StatusBadRequest, TypeInvalid, ""},
	berth.CodeUnauthorized:        {http.StatusUnauthorized, TypeInvalid, ""},
	berth.CodeForbidden:           {http.StatusForbidden, TypeInvalid, ""},
	berth.CodeNotFound:            {http.StatusNotFound, TypeInvalid, ""},
	berth.CodeConflict:            {http.StatusConflict, TypeInvalid, "conflict"},
	berth.CodeTooLarge:            {http.StatusRequestEntityTooLarge, TypeInvalid, "request_too_large"},
	berth.CodeUnsupportedMedia:    {http.StatusUnsupportedMediaType, TypeInvalid, "unsupported_content_encoding"},
	berth.CodeRateLimited:         {http.StatusTooManyRequests, TypeRateLimit, "rate_limit_exceeded"},
	berth.CodeUpstream:            {http.StatusBadGateway, TypeServer, "upstream_error"},
	berth.CodeUnavailable:         {http.StatusServiceUnavailable, TypeServer, "unavailable"},
	berth.CodeInsufficientStorage: {http.StatusInsufficientStorage, TypeServer, "insufficient_storage"},
	berth.CodeCorrupt:             {http.StatusInternalServerError, TypeServer, "file_corrupt"},
	berth.CodeInternal:            {http.StatusInternalServerError, TypeServer, ""},
}

// Error is the body of an error's answer: {"error":{…}}, nulls explicit.
type Error struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// Describe returns the status and the body for an error. What is not a
// *berth.Error is a fault of this server: its text goes to the log only, and the
// client gets the request id to quote.
func Describe(err error, requestID string) (int, Error) {
	e, ok := errors.AsType[*berth.Error](err)
	switch {
	case errors.Is(err, store.ErrNotFound) && !ok:
		e = &berth.Error{Code: berth.CodeNotFound, Message: "What was asked for does not exist."}
	case lacksStorage(err, e):
		e = diskspace.Refused(err)
	case !ok || e.Code == berth.CodeInternal:
		e = &berth.Error{Code: berth.CodeInternal,
			Message: "The server had an error while processing your request. Its log says more under request id " + requestID + "."}
	}
	as, ok := statuses[e.Code]
	if !ok {
		as = statuses[berth.CodeInternal]
	}
	code := e.Wire
	if code == "" {
		code = as.wireCode
	}
	return as.status, Error{Message: e.Message, Type: cmp.Or(e.Type, as.wireType), Param: OrNull(e.Param), Code: OrNull(code)}
}

// lacksStorage reports whether an error that the client cannot fix is due to the host's
// full or failing disk. e is the *berth.Error in err, or nil.
func lacksStorage(err error, e *berth.Error) bool {
	if e != nil && e.Code != berth.CodeInternal && e.Code != berth.CodeUnavailable {
		return false
	}
	return errors.Is(err, store.ErrStorage) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// OrNull returns nil for "", which is null on the wire.
func OrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// writeError answers with an error.
func writeError(w http.ResponseWriter, status int, e Error) {
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusConflict:
		// OpenAI's clients repeat a request on 409; here that changes nothing.
		w.Header().Set("x-should-retry", "false")
	}
	if e.Code != nil && *e.Code == statuses[berth.CodeCorrupt].wireCode {
		w.Header().Set("x-should-retry", "false")
	}
	_ = WriteJSON(w, status, struct {
		Error Error `json:"error"`
	}{e})
}

// Error answers with an error that no handler returns, with headers of its own for example.
func (x *Exchange) Error(status int, e Error) { writeError(x, status, e) }

// EventError returns the error for the client of a response that has failed.
func EventError(e *berth.EventError) error {
	code := berth.CodeUpstream
	switch {
	case e.Code == "model_not_found":
		code = berth.CodeNotFound
	case e.Type == TypeInvalid:
		code = berth.CodeInvalid
	case e.Type == TypeRateLimit:
		code = berth.CodeRateLimited
	}
	err := &berth.Error{Code: code, Wire: e.Code, Message: e.Message}
	if e.Param != nil {
		err.Param = *e.Param
	}
	return err
}

// FollowError returns the error of reading the events of a response that ended before the
// response did.
func FollowError(ctx context.Context, id berth.ResponseID, err error) error {
	if ctx.Err() != nil {
		return &berth.Error{Code: berth.CodeUnavailable, Err: err,
			Message: "The server is stopping. Ask for response '" + string(id) + "' again in a moment."}
	}
	if errors.Is(err, store.ErrNotFound) {
		return ResponseNotFound(id)
	}
	return err
}

// ResponseNotFound returns the error for a response that does not exist.
func ResponseNotFound(id berth.ResponseID) error {
	return berth.Errorf(berth.CodeNotFound, "Response with id '%s' not found.", rule.Clip(string(id)))
}
