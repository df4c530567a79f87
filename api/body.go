package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/ration"
)

// body returns a request's body, decoded, for reading within limit bytes as sent and as
// decoded; 0 is any number. A client that sends nothing for longer than patience is given up; one
// that is slow is not.
func (s *server) body(w http.ResponseWriter, r *http.Request, limit int64) io.Reader {
	if x, ok := w.(*exchange); ok {
		w = x.ResponseWriter // which, unlike others, can tell its server to close
	}
	bounded := func(in io.Reader) io.Reader {
		if limit == 0 {
			return in
		}
		return http.MaxBytesReader(w, io.NopCloser(in), limit)
	}
	sent := &patientReader{bounded(r.Body), http.NewResponseController(w), s.Patience}
	body := decoded(r, sent)
	if body == io.Reader(sent) {
		return body
	}
	return bounded(body)
}

// readBody reads a whole body of at most limit bytes, or returns what was read of it
// before. It reserves room for the body before it reads it. Its errors are for the client.
func (s *server) readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	x, ok := w.(*exchange)
	if ok && x.body != nil {
		body := x.body
		x.body = nil
		return body, nil
	}
	if r.ContentLength > limit {
		return nil, bodyError(&http.MaxBytesError{Limit: limit})
	}
	var held *ration.Account
	if ok {
		held = x.bodies
	}
	size := r.ContentLength
	if r.Header.Get("Content-Encoding") != "" {
		size = -1 // it is that of what was sent
	}
	body, err := readWithin(r.Context(), s.body(w, r, limit), size, held)
	if err != nil {
		return nil, bodyError(err)
	}
	if ok && size < 0 { // it was not known before
		if err := x.room(r.Context(), int64(len(body))); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// readWithin reads all of in, which has size bytes, -1 if that is not known. It
// reserves room in an account before it reads.
func readWithin(ctx context.Context, in io.Reader, size int64, held *ration.Account) ([]byte, error) {
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

// bodyError words an error of reading a request's body.
func bodyError(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return berth.Errorf(berth.CodeTooLarge, "The request body is larger than %d bytes.", tooLarge.Limit)
	}
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e
	}
	return &berth.Error{Code: berth.CodeInvalid, Message: "The request body did not arrive whole, or is not in its content encoding.", Err: err}
}

// isJSON reports whether a request says that its body is JSON. No Content-Type
// is taken for JSON.
func isJSON(r *http.Request) bool {
	kind := r.Header.Get("Content-Type")
	if kind == "" {
		return true
	}
	kind, _, err := mime.ParseMediaType(kind)
	return err == nil && kind == "application/json"
}

type patientReader struct {
	in       io.Reader
	control  *http.ResponseController
	patience time.Duration
}

func (p *patientReader) Read(b []byte) (int, error) {
	// Not every connection has deadlines; without, the kernel's keep-alive finds
	// a client that has vanished.
	_ = p.control.SetReadDeadline(time.Now().Add(p.patience))
	n, err := p.in.Read(b)
	if err != nil {
		// The server goes on reading, to notice when the client leaves.
		_ = p.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// A patientWriter gives up a client that reads nothing for longer than patience.
type patientWriter struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

func (s *server) patiently(w http.ResponseWriter) *patientWriter {
	return &patientWriter{w, http.NewResponseController(w), s.Patience}
}

// Unwrap serves http.ResponseController.
func (p *patientWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write gives the client its time for each piece of b, not for all of it.
func (p *patientWriter) Write(b []byte) (int, error) {
	const piece = 32 << 10
	written := 0
	for {
		p.renew()
		n, err := p.ResponseWriter.Write(b[written:min(written+piece, len(b))])
		written += n
		if err != nil || written == len(b) {
			return written, err
		}
	}
}

// renew begins the client's time anew. The server lifts the deadline after each
// request.
func (p *patientWriter) renew() { _ = p.control.SetWriteDeadline(time.Now().Add(p.patience)) }

// download answers with the bytes of a file of this name and size. Whatever the
// file is, a browser stores it and does not run it. Ranges work where content
// can seek.
func (s *server) download(w http.ResponseWriter, r *http.Request, name string, size int64, content io.Reader) error {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", attachment(name))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	out := s.patiently(w)
	defer out.renew() // the last bytes leave after the handler
	if seeker, ok := content.(io.ReadSeeker); ok {
		http.ServeContent(out, r, "", time.Time{}, seeker)
		return nil
	}
	if size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	if _, err := io.Copy(out, content); err != nil {
		s.Log.Warn("a download broke off", "request_id", h.Get("x-request-id"), "err", err)
		panic(http.ErrAbortHandler) // half a file must not look like a whole one
	}
	return nil
}

func attachment(name string) string {
	if v := mime.FormatMediaType("attachment", map[string]string{"filename": name}); v != "" {
		return v
	}
	return "attachment"
}
