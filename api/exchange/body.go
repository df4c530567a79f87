package exchange

import (
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/ration"
)

// Body returns a reader of a request's body with its content encoding removed. Reads fail
// beyond limit bytes, encoded or decoded (0 means no limit), and if the client sends
// nothing for longer than Limits.Patience.
func (x *Exchange) Body(r *http.Request, limit int64) io.Reader {
	bounded := func(in io.Reader) io.Reader {
		if limit == 0 {
			return in
		}
		// The inner writer is needed here: through it, MaxBytesReader makes the server close the
		// connection.
		return http.MaxBytesReader(x.ResponseWriter, io.NopCloser(in), limit)
	}
	sent := &patientReader{bounded(r.Body), http.NewResponseController(x.ResponseWriter), x.server.Limits.Patience}
	body := decoded(r, sent)
	if body == io.Reader(sent) {
		return body
	}
	return bounded(body)
}

// ReadBody returns a whole body of at most limit bytes, which may have been read before. It
// reserves memory before it reads. Its errors are for the client.
func (x *Exchange) ReadBody(r *http.Request, limit int64) ([]byte, error) {
	if x.body != nil {
		body := x.body
		x.body = nil
		return body, nil
	}
	if r.ContentLength > limit {
		return nil, bodyError(&http.MaxBytesError{Limit: limit})
	}
	size := r.ContentLength
	if r.Header.Get("Content-Encoding") != "" {
		size = -1 // the length is that of the encoded body
	}
	body, err := ration.Read(r.Context(), x.Body(r, limit), size, x.bodies)
	if err != nil {
		return nil, bodyError(err)
	}
	if !x.server.Placement.Alone() { // for Forward
		x.relay.body = body
	}
	if size < 0 && x.room != nil { // reserve could not count it
		if err := x.room(r.Context(), int64(len(body))); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// DiscardBody reads a whole body and discards it.
func (x *Exchange) DiscardBody(r *http.Request) error {
	if _, err := io.Copy(io.Discard, x.Body(r, x.server.Limits.MaxBody)); err != nil {
		return bodyError(err)
	}
	return nil
}

// bodyError returns the client's error for a failed read of a request's body.
func bodyError(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return berth.Errorf(berth.CodeTooLarge, "The request body is larger than %d bytes.", tooLarge.Limit)
	}
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e
	}
	return &berth.Error{Code: berth.CodeInvalid,
		Message: "The request body is incomplete or does not match its Content-Encoding.", Err: err}
}

// IsJSON reports whether the Content-Type of a request is application/json or absent.
func IsJSON(r *http.Request) bool {
	kind := r.Header.Get("Content-Type")
	if kind == "" {
		return true
	}
	kind, _, err := mime.ParseMediaType(kind)
	return err == nil && kind == "application/json"
}
