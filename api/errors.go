package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"syscall"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/store"
)

// The "type" of an error on the wire, as OpenAI names them.
const (
	typeInvalid   = "invalid_request_error"
	typeRateLimit = "rate_limit_error"
	typeServer    = "server_error"
)

// statuses is the one table from codes to what HTTP and the wire say of them.
var statuses = map[berth.Code]struct {
	status   int
	wireType string
	wireCode string // unless the error brings its own
}{
	berth.CodeInvalid:             {http.StatusBadRequest, typeInvalid, ""},
	berth.CodeUnauthorized:        {http.StatusUnauthorized, typeInvalid, ""},
	berth.CodeForbidden:           {http.StatusForbidden, typeInvalid, ""},
	berth.CodeNotFound:            {http.StatusNotFound, typeInvalid, ""},
	berth.CodeConflict:            {http.StatusConflict, typeInvalid, "conflict"},
	berth.CodeTooLarge:            {http.StatusRequestEntityTooLarge, typeInvalid, "request_too_large"},
	berth.CodeUnsupportedMedia:    {http.StatusUnsupportedMediaType, typeInvalid, "unsupported_content_encoding"},
	berth.CodeRateLimited:         {http.StatusTooManyRequests, typeRateLimit, "rate_limit_exceeded"},
	berth.CodeUpstream:            {http.StatusBadGateway, typeServer, "upstream_error"},
	berth.CodeUnavailable:         {http.StatusServiceUnavailable, typeServer, "unavailable"},
	berth.CodeInsufficientStorage: {http.StatusInsufficientStorage, typeServer, "insufficient_storage"},
	berth.CodeCorrupt:             {http.StatusInternalServerError, typeServer, "file_corrupt"},
	berth.CodeInternal:            {http.StatusInternalServerError, typeServer, ""},
}

// wireError is the body of an error's answer: {"error":{…}}, nulls explicit.
type wireError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// describe returns the status and the body for an error. What is not a
// *berth.Error is a fault of this server: its text goes to the log only, and the
// client gets the request id to quote.
func describe(err error, requestID string) (int, wireError) {
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
	return as.status, wireError{Message: e.Message, Type: cmp.Or(e.Type, as.wireType), Param: orNull(e.Param), Code: orNull(code)}
}

// lacksStorage reports whether an error that the client cannot mend comes of the host's
// full or failing disk. e is the *berth.Error in err, or nil.
func lacksStorage(err error, e *berth.Error) bool {
	if e != nil && e.Code != berth.CodeInternal && e.Code != berth.CodeUnavailable {
		return false
	}
	return errors.Is(err, store.ErrStorage) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// writeError answers with an error.
func writeError(w http.ResponseWriter, status int, e wireError) {
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
	writeJSON(w, status, struct {
		Error wireError `json:"error"`
	}{e})
}

// writeJSON answers with a value that marshals. An error in writing means that
// the client has gone.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, ok := v.(json.RawMessage) // which came from the store, as it is sent
	if !ok {
		var err error
		if body, err = json.Marshal(v); err != nil {
			return err
		}
	}
	writePieces(w, status, body)
	return nil
}

// writePieces answers with JSON that comes in pieces.
func writePieces(w http.ResponseWriter, status int, pieces ...[]byte) {
	size := 0
	for _, piece := range pieces {
		size += len(piece)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(size))
	w.WriteHeader(status)
	deliver(w, pieces...)
}

// deliver writes a body. A client that does not read it is given up.
func deliver(w http.ResponseWriter, pieces ...[]byte) {
	out := io.Writer(w)
	if x, ok := w.(*exchange); ok && x.patience > 0 {
		patient := &patientWriter{w, http.NewResponseController(w), x.patience}
		defer patient.renew() // the last bytes leave after the handler
		out = patient
	}
	for _, piece := range pieces {
		if _, err := out.Write(piece); err != nil {
			return
		}
	}
}
