package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// A failure is an error that the user sees, from the API or the console.
type failure struct {
	Status  int
	Message string
}

func (f *failure) Error() string { return f.Message }

// Advice returns what the user of a page can do; "" if the message says it.
func (f *failure) Advice(p *page) string {
	switch {
	case f.Status == http.StatusForbidden && p.Admin:
		return "An admin key shows projects, keys, usage and the audit record. Choose a project at the top, or add its key, " +
			"to see its runs and containers."
	case f.Status == http.StatusForbidden && p.SignedIn:
		return "The key of a project shows only this project. Add an admin key for the pages of the operator."
	case f.Status == http.StatusNotFound && p.SignedIn:
		return "It may have been deleted, or it belongs to another project: choose that project at the top."
	case f.Status == http.StatusNotFound:
		return "It may have been deleted."
	case f.Status >= http.StatusInternalServerError:
		return "Try again. If it fails again, the server's log has the reason."
	}
	return ""
}

// get decodes the API's answer to a GET.
func (v *visit) get(path string, into any) error {
	return v.exchange(http.MethodGet, path, nil, "", into)
}

// post sends a POST with a value to the API and decodes the answer.
func (v *visit) post(path string, value, into any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode request of %s: %w", path, err)
	}
	return v.exchange(http.MethodPost, path, bytes.NewReader(raw), "application/json", into)
}

// delete sends a DELETE to the API.
func (v *visit) delete(path string) error {
	return v.exchange(http.MethodDelete, path, nil, "", &struct{}{})
}

// exchange sends a request to the API and decodes the answer.
func (v *visit) exchange(method, path string, content io.Reader, contentType string, into any) error {
	body, err := v.send(method, path, content, contentType)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("decode answer of %s: %w", path, err)
	}
	return nil
}

// send sends a request to the API with the key of the visit. It returns the body of the
// answer, which the caller must close, or a *failure with the API's message. Closing the
// body ends the request.
func (v *visit) send(method, path string, body io.Reader, contentType string) (io.ReadCloser, error) {
	header := http.Header{}
	if contentType != "" {
		header.Set("Content-Type", contentType)
	}
	resp, err := v.do(v.r.Context(), method, path, header, body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxForm))
	if err != nil {
		return nil, fmt.Errorf("read error of %s: %w", path, err)
	}
	if message, ok := problem(bytes.NewReader(raw)); ok {
		return nil, &failure{resp.StatusCode, message}
	}
	var other struct{ Message string } // of E2B's API
	if json.Unmarshal(raw, &other) != nil || other.Message == "" {
		return nil, fmt.Errorf("decode error of %s", path)
	}
	return nil, &failure{resp.StatusCode, other.Message}
}

// problem returns the message of an error of the API; ok is false if body is none.
func problem(body io.Reader) (message string, ok bool) {
	var problem struct {
		Error *struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	err := json.NewDecoder(io.LimitReader(body, maxForm)).Decode(&problem)
	if err != nil || problem.Error == nil {
		return "", false
	}
	return problem.Error.Message, true
}

// address makes a request to the API one of the visitor: with the key, and from where the visit comes, which the API
// checks without keys.
func (v *visit) address(r *http.Request) {
	r.RemoteAddr, r.Host, r.TLS = v.r.RemoteAddr, v.r.Host, v.r.TLS
	if r.Header == nil {
		r.Header = http.Header{}
	}
	for name, values := range v.r.Header {
		if passed(name) {
			r.Header[name] = slices.Clone(values)
		}
	}
	if v.key != "" {
		r.Header.Set("Authorization", "Bearer "+v.key)
	}
}

// do sends a request to the API with the key of the visit and header, and returns the answer.
// Closing its body ends the request.
func (v *visit) do(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response,
	error) {
	ctx, cancel := context.WithCancel(ctx)
	r, err := http.NewRequestWithContext(ctx, method, path, body)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("create request of %s: %w", path, err)
	}
	v.address(r)
	r.RequestURI = path
	if v.once != "" && method == http.MethodPost {
		r.Header.Set("Idempotency-Key", v.once)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if r.Body == nil {
		r.Body = http.NoBody // as a server's requests have
	} else if r.ContentLength == 0 && r.Body != http.NoBody {
		r.ContentLength = -1 // unknown
	}
	in, out := io.Pipe()
	a := &answer{header: http.Header{}, body: out, started: make(chan struct{}), ended: make(chan struct{})}
	go a.serve(v.console.api, r)
	<-a.started
	return &http.Response{StatusCode: a.status, Status: http.StatusText(a.status), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     a.sent, Trailer: http.Header{}, Body: &answerBody{in, cancel, a.ended},
		ContentLength: lengthOf(a.sent), Request: r}, nil
}

// lengthOf returns the Content-Length of a header; -1 without one.
func lengthOf(h http.Header) int64 {
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		return n
	}
	return -1
}

// A passage is an http.RoundTripper to the API, with the key of a visit. An error of the API itself
// is a *failure; those of a container's guest have another form.
type passage struct{ visit *visit }

// RoundTrip implements http.RoundTripper.
func (p passage) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.visit.do(r.Context(), r.Method, r.URL.RequestURI(), r.Header, r.Body)
	if err != nil || resp.StatusCode < http.StatusBadRequest {
		return resp, err
	}
	start, err := io.ReadAll(io.LimitReader(resp.Body, maxForm))
	if message, ok := problem(bytes.NewReader(start)); ok || err != nil {
		resp.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("read error of %s: %w", r.URL.Path, err)
		}
		return nil, &failure{resp.StatusCode, message}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), resp.Body), resp.Body}
	return resp, nil
}

// guestOf returns a client for the guest of a container, which the API connects to.
func guestOf(v *visit, id berth.ContainerID) *guest.Client {
	return guest.NewHTTPClient("http://api/v1/containers/"+url.PathEscape(string(id))+"/guest",
		&http.Client{Transport: passage{v}})
}

// passed reports whether a header of a browser's request is sent to the API as well: those
// that tell where it comes from, and not those about its content or connection.
func passed(name string) bool {
	switch name {
	case "Authorization", "Cookie", "Connection", "Idempotency-Key", "Range", "Upgrade", "X-Client-Request-Id":
		return false
	}
	return !strings.HasPrefix(name, "Accept") && !strings.HasPrefix(name, "Content-") && !strings.HasPrefix(name, "If-")
}

// An answer is the http.ResponseWriter of a request to the API in this process. Its body is
// a pipe, so events of a stream can be read as they come.
type answer struct {
	header  http.Header
	sent    http.Header // as it was when status was set
	status  int
	body    *io.PipeWriter
	started chan struct{} // closed when status is set
	ended   chan struct{} // closed when the handler has returned
}

// An answerBody is the body of an answer. Close ends the request and waits for its handler.
type answerBody struct {
	io.ReadCloser
	cancel context.CancelFunc
	ended  <-chan struct{}
}

// Close implements io.Closer.
func (b *answerBody) Close() error {
	b.cancel()
	err := b.ReadCloser.Close()
	<-b.ended
	return err
}

// serve answers r. A panic of the handler, which the API has logged, breaks the body.
func (a *answer) serve(api http.Handler, r *http.Request) {
	err := io.ErrUnexpectedEOF
	defer func() {
		defer close(a.ended)
		_ = recover()
		a.WriteHeader(http.StatusInternalServerError)
		a.body.CloseWithError(err)
	}()
	api.ServeHTTP(a, r)
	a.WriteHeader(http.StatusOK)
	err = io.EOF
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status, a.sent = status, a.header.Clone()
		close(a.started)
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// FlushError is called by http.ResponseController. A pipe has no buffer.
func (a *answer) FlushError() error {
	a.WriteHeader(http.StatusOK)
	return nil
}
