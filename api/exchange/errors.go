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
)

// OpenAI's types of errors.
const (
	TypeInvalid   = "invalid_request_error"
	TypeRateLimit = "rate_limit_error"
	TypeServer    = "server_error"
	TypeConnector = "external_connector_error"
)

// statuses maps codes to HTTP statuses and to OpenAI's types and codes.
var statuses = map[berth.Code]struct {
	status   int
	wireType string
	wireCode string // used if the error has no code of its own
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
	berth.CodeDependency:          {http.StatusFailedDependency, TypeConnector, "http_error"},
	berth.CodeUnavailable:         {http.StatusServiceUnavailable, TypeServer, "unavailable"},
	berth.CodeInsufficientStorage: {http.StatusInsufficientStorage, TypeServer, "insufficient_storage"},
	berth.CodeCorrupt:             {http.StatusInternalServerError, TypeServer, "file_corrupt"},
	berth.CodeInternal:            {http.StatusInternalServerError, TypeServer, ""},
}

// Error is the object "error" of an error's answer. Absent fields are explicit nulls.
type Error struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// Describe returns the HTTP status and the body for an error. An error that is not a
// *berth.Error is a fault of this server: the client gets only the request id, with which
// the operator finds the error in the log.
func Describe(err error, requestID string) (int, Error) {
	e, ok := errors.AsType[*berth.Error](err)
	switch {
	case errors.Is(err, berth.ErrNotFound) && !ok:
		e = &berth.Error{Code: berth.CodeNotFound, Message: "The requested object was not found."}
	case lacksStorage(err, e):
		e = diskspace.Refused(err)
	case errors.Is(err, berth.ErrUnavailable) && (!ok || e.Code == berth.CodeInternal):
		e = &berth.Error{Code: berth.CodeUnavailable,
			Message: "The server's database is not available at the moment. Send the request again later."}
	case !ok || e.Code == berth.CodeInternal:
		e = &berth.Error{Code: berth.CodeInternal,
			Message: "The server had an error while processing your request. Its log has the details under request ID " + requestID + "."}
	}
	as, ok := statuses[e.Code]
	if !ok {
		as = statuses[berth.CodeInternal]
	}
	code := e.Wire
	if code == "" {
		code = as.wireCode
	}
	return as.status, Error{Message: e.Message, Type: cmp.Or(e.Type, as.wireType), Param: OrNull(e.Param),
		Code: OrNull(code)}
}

// lacksStorage reports whether an error of the server is due to a full or failing disk of
// the host. e is the *berth.Error in err, or nil.
func lacksStorage(err error, e *berth.Error) bool {
	if e != nil && e.Code != berth.CodeInternal && e.Code != berth.CodeUnavailable {
		return false
	}
	return errors.Is(err, berth.ErrStorage) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// OrNull returns nil for "", which marshals to null, and otherwise a pointer to s.
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
		// OpenAI's clients retry on 409, but here a retry gets the same answer.
		w.Header().Set("x-should-retry", "false")
	}
	if e.Code != nil && *e.Code == statuses[berth.CodeCorrupt].wireCode {
		w.Header().Set("x-should-retry", "false")
	}
	_ = WriteJSON(w, status, struct {
		Error Error `json:"error"`
	}{e})
}

// Error answers with an error directly. Handlers use it if the answer has headers of its own.
func (x *Exchange) Error(status int, e Error) { writeError(x, status, e) }

// EventError returns the client's error for a response that failed with an error event.
func EventError(e *berth.EventError) error {
	code := berth.CodeUpstream
	switch {
	case e.Code == "model_not_found":
		code = berth.CodeNotFound
	case e.Type == TypeInvalid:
		code = berth.CodeInvalid
	case e.Type == TypeRateLimit:
		code = berth.CodeRateLimited
	case e.Type == TypeConnector:
		code = berth.CodeDependency
	}
	err := &berth.Error{Code: code, Wire: e.Code, Message: e.Message}
	if e.Param != nil {
		err.Param = *e.Param
	}
	return err
}

// FollowError returns the client's error for a failed read of a response's events.
func FollowError(ctx context.Context, id berth.ResponseID, err error) error {
	if ctx.Err() != nil {
		return &berth.Error{Code: berth.CodeUnavailable, Err: err,
			Message: "The server is stopping. Retrieve response '" + string(id) + "' again in a moment."}
	}
	if errors.Is(err, berth.ErrNotFound) {
		return ResponseNotFound(id)
	}
	return err
}

// ResponseNotFound returns the error for a response that does not exist.
func ResponseNotFound(id berth.ResponseID) error {
	return berth.NotFound("Response", rule.Clip(string(id)))
}
