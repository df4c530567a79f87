package exchange

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/ration"
)

// Body returns a request's body without its content encoding, for reading within limit
// bytes as sent and as decoded; 0 means no limit. Reading fails if the client sends
// nothing for longer than the server's patience.
func (x *Exchange) Body(r *http.Request, limit int64) io.Reader {
	bounded := func(in io.Reader) io.Reader {
		if limit == 0 {
			return in
		}
		// Unlike the exchange, its writer can tell its server to close the connection.
		return http.MaxBytesReader(x.ResponseWriter, io.NopCloser(in), limit)
	}
	sent := &patientReader{bounded(r.Body), http.NewResponseController(x.ResponseWriter), x.server.Limits.Patience}
	body := decoded(r, sent)
	if body == io.Reader(sent) {
		return body
	}
	return bounded(body)
}

// ReadBody reads a whole body of at most limit bytes, or returns what was read of it
// before. It reserves room for the body before it reads it. Its errors are for the client.
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
		size = -1 // it is that of what was sent
	}
	body, err := ReadWithin(r.Context(), x.Body(r, limit), size, x.bodies)
	if err != nil {
		return nil, bodyError(err)
	}
	if size < 0 && x.room != nil { // it was not known before
		if err := x.room(r.Context(), int64(len(body))); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// DiscardBody reads a whole body and drops it.
func (x *Exchange) DiscardBody(r *http.Request) error {
	if _, err := io.Copy(io.Discard, x.Body(r, x.server.Limits.MaxBody)); err != nil {
		return bodyError(err)
	}
	return nil
}

// ReadWithin reads all of in, which has size bytes; a negative size is unknown. It
// reserves room in an account before it reads.
func ReadWithin(ctx context.Context, in io.Reader, size int64, held *ration.Account) ([]byte, error) {
	known := size >= 0
	if !known {
		size = ration.Free / 2
	}
	if err := held.Reserve(ctx, size); err != nil {
		return nil, err
	}
	body := make([]byte, 0, size+bytes.MinRead)
	for {
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
		if len(body) < cap(body) {
			continue
		}
		more := int64(cap(body))
		if err := held.Reserve(ctx, 2*more); err != nil { // the old and the new one, for a moment
			return nil, err
		}
		body = append(make([]byte, 0, 2*more), body...)
		held.Return(more)
	}
}

// bodyError returns the error for the client of reading a request's body.
func bodyError(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return berth.Errorf(berth.CodeTooLarge, "The request body is larger than %d bytes.", tooLarge.Limit)
	}
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e
	}
	return &berth.Error{Code: berth.CodeInvalid, Message: "The request body did not arrive whole, or is not in its content encoding.", Err: err}
}

// IsJSON reports whether a request says that its body is JSON. No Content-Type
// is taken for JSON.
func IsJSON(r *http.Request) bool {
	kind := r.Header.Get("Content-Type")
	if kind == "" {
		return true
	}
	kind, _, err := mime.ParseMediaType(kind)
	return err == nil && kind == "application/json"
}
