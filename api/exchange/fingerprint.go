package exchange

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
)

// A fingerprint is a hash of the body of a request. The body of a form is hashed while
// its handler reads it. The boundary between its parts is not hashed, because a client
// makes a new one each time.
type fingerprint struct {
	hash hash.Hash
	form *io.PipeWriter // what the handler reads goes there as well; nil if it is no form
	rest io.Reader      // of a form, what has not been read yet
	done chan error
}

// fingerprint reads the body of a request, unless that is a form, and puts it back.
func (x *Exchange) fingerprint(r *http.Request) (*fingerprint, error) {
	f := &fingerprint{hash: sha256.New()}
	io.WriteString(f.hash, r.URL.RawQuery+"\x00")
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && kind == "multipart/form-data" {
		f.readForm(x.Body(r, 0), params["boundary"])
		r.Header.Del("Content-Encoding") // what the handler reads is decoded
		r.Body = io.NopCloser(f.rest)
		return f, nil
	}
	body, err := x.ReadBody(r, x.server.Limits.MaxBody)
	if err != nil {
		return nil, err
	}
	r.Header.Del("Content-Encoding") // what the handler reads is decoded
	f.hash.Write(body)
	r.Body = io.NopCloser(bytes.NewReader(body)) // for a handler that reads it otherwise
	x.body = body
	return f, nil
}

// readForm hashes the parts of a form while rest is read.
func (f *fingerprint) readForm(body io.Reader, boundary string) {
	in, out := io.Pipe()
	f.form, f.rest, f.done = out, io.TeeReader(body, out), make(chan error, 1)
	go func() {
		err := hashParts(f.hash, multipart.NewReader(in, boundary))
		_, _ = io.Copy(io.Discard, in) // the handler must not wait
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
			return err
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, part); err != nil {
			return err
		}
		name := sha256.Sum256([]byte(part.Header.Get("Content-Disposition")))
		h.Write(sum.Sum(name[:]))
	}
}

// finish reads what is left of the body. sum may follow it.
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

// close ends the reading of a form that its handler has not read to the end.
func (f *fingerprint) close() {
	if f.form != nil {
		f.form.CloseWithError(errFormLeft)
	}
}

var errFormLeft = errors.New("the form was not read to its end")

// sum is the fingerprint of a body that has been read.
func (f *fingerprint) sum() string { return hex.EncodeToString(f.hash.Sum(nil)) }
