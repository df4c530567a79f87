package exchange

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
)

// A fingerprint is a hash of the query and the body of a request. A form is hashed while
// its handler reads it. The boundary between its parts is not hashed, because clients
// choose a new one for each attempt.
type fingerprint struct {
	hash hash.Hash
	form *io.PipeWriter // gets a copy of the bytes that the handler reads; nil for other bodies
	rest io.Reader      // the unread rest of a form
	done chan error
}

// fingerprint starts the fingerprint of a request. It reads the body, unless it is a form,
// and makes it available to the handler again.
func (x *Exchange) fingerprint(r *http.Request) (*fingerprint, error) {
	f := &fingerprint{hash: sha256.New()}
	io.WriteString(f.hash, r.URL.RawQuery+"\x00")
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && kind == "multipart/form-data" {
		f.readForm(x.Body(r, 0), params["boundary"])
		r.Header.Del("Content-Encoding") // the handler reads the decoded body
		r.Body = io.NopCloser(f.rest)
		return f, nil
	}
	body, err := x.ReadBody(r, x.server.Limits.MaxBody)
	if err != nil {
		return nil, err
	}
	r.Header.Del("Content-Encoding") // the handler reads the decoded body
	f.hash.Write(body)
	r.Body = io.NopCloser(bytes.NewReader(body)) // for handlers that do not use ReadBody
	x.body = body
	return f, nil
}

// readForm hashes the parts of a form while rest is read.
func (f *fingerprint) readForm(body io.Reader, boundary string) {
	in, out := io.Pipe()
	f.form, f.rest, f.done = out, io.TeeReader(body, out), make(chan error, 1)
	go func() {
		err := hashParts(f.hash, multipart.NewReader(in, boundary))
		_, _ = io.Copy(io.Discard, in) // so that the handler does not block
		f.done <- err
	}()
}

func hashParts(h hash.Hash, parts *multipart.Reader) error {
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read part: %w", err)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, part); err != nil {
			return err
		}
		name := sha256.Sum256([]byte(part.Header.Get("Content-Disposition")))
		h.Write(sum.Sum(name[:]))
	}
}

// finish reads the rest of the body. It must be called before sum.
func (f *fingerprint) finish() error {
	if f.form == nil {
		return nil
	}
	if _, err := io.Copy(io.Discard, f.rest); err != nil {
		return malformed(err)
	}
	f.form.Close()
	if err := <-f.done; err != nil {
		return malformed(err)
	}
	f.form = nil
	return nil
}

// close ends the hashing of a form that its handler has not read to the end.
func (f *fingerprint) close() {
	if f.form != nil {
		f.form.CloseWithError(errFormLeft)
	}
}

var errFormLeft = errors.New("the form was not read to its end")

// sum returns the fingerprint in hex. The body must have been read.
func (f *fingerprint) sum() string { return hex.EncodeToString(f.hash.Sum(nil)) }
