package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/container/session"
	"github.com/berth-run/berth/internal/rule"
)

// Who approves the calls of a connection that change something.
const (
	askNever   = "never"
	askConsole = "console" // a person in the console, also if the client could ask its user
)

// A visit is a request of the protocol: who sent it, and which container it means.
type visit struct {
	door    *Door
	request *http.Request
	caller  berth.Caller
	session *session.Session // nil without sessions
	spec    session.Spec
	ask     string // who approves each call that changes something: never, always or console
}

// post serves POST /mcp: a message of a client.
func (d *Door) post(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	v, err := d.visit(r, c)
	if err != nil {
		return err
	}
	body, err := x.ReadBody(r, d.MaxBody)
	if err != nil {
		return err
	}
	if _, err := exchange.ScanJSON(body); err != nil {
		return err
	}
	r = withBody(r, body)
	id := r.Header.Get(sessionHeader)
	if r.Header.Get(versionHeader) >= sessionless {
		if done, err := d.toContainer(x, r, v); done || err != nil {
			return err
		}
		d.serve(d.stateless, newWriter(x, d.KeepAlive), v, r, "")
		return nil
	}
	if id != "" {
		return d.inSession(x, r, v, id)
	}
	if done, err := d.toContainer(x, r, v); done || err != nil {
		return err
	}
	return d.open(x, r, v)
}

// get serves GET /mcp: the stream of messages of a session, or the rest of a stream that broke.
func (d *Door) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	v, err := d.visit(r, c)
	if err != nil {
		return err
	}
	id := r.Header.Get(sessionHeader)
	if id == "" {
		return methodNotAllowed(x)
	}
	return d.inSession(x, r, v, id)
}

// methodNotAllowed answers a GET or a DELETE without a session.
func methodNotAllowed(x *exchange.Exchange) error {
	x.Header().Set("Allow", "POST")
	_ = x.JSON(http.StatusMethodNotAllowed, newFailure(http.StatusMethodNotAllowed,
		"Without a session, send messages with POST. Name a session in the header '"+sessionHeader+"'."))
	return nil
}

// end serves DELETE /mcp: it ends a session.
func (d *Door) end(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	v, err := d.visit(r, c)
	if err != nil {
		return err
	}
	id := r.Header.Get(sessionHeader)
	if id == "" {
		return methodNotAllowed(x)
	}
	sess, release, err := d.use(v, id)
	if done, err := d.elsewhere(x, r, v, id, err); done || err != nil {
		return err
	}
	d.Sessions.End(sess)
	release()
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// visit checks the origin and the query of a request.
func (d *Door) visit(r *http.Request, c berth.Caller) (*visit, error) {
	if err := d.checkOrigin(r); err != nil {
		return nil, err
	}
	v := &visit{door: d, request: r, caller: c}
	return v, v.read(r)
}

// withBody returns the request with a body that was read.
func withBody(r *http.Request, body []byte) *http.Request {
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Del("Content-Encoding") // it was decoded
	return r
}

// serve passes a request on to the SDK. transport is the SDK's id of the session.
func (d *Door) serve(h http.Handler, w *writer, v *visit, r *http.Request, transport string) {
	defer w.close()
	ctx := context.WithValue(r.Context(), visitKey{}, v)
	r = r.Clone(ctx)
	r.Header.Set("Authorization", "Bearer -") // no tool needs the key
	r.Header.Del(sessionHeader)
	if transport != "" {
		r.Header.Set(sessionHeader, transport)
	}
	if r.Method == http.MethodPost && r.Header.Get("Accept") == "" {
		r.Header.Set("Accept", "*/*")
	}
	h.ServeHTTP(w, r)
}

// open serves a request without a session, which may open one.
func (d *Door) open(x *exchange.Exchange, r *http.Request, v *visit) error {
	sess, release, err := d.Sessions.Open(v.caller.Project, v.spec)
	if err != nil {
		return err
	}
	defer release()
	sess.OnEnd(func() { d.forget(sess) })
	v.session = sess
	w := newWriter(x, d.KeepAlive)
	bound := false
	w.onHeader = func(h http.Header) {
		if id := h.Get(sessionHeader); id != "" {
			bound = true
			d.bind(sess, id)
			h.Set(sessionHeader, d.publicID(sess))
		}
	}
	d.serve(d.stateful, w, v, r, "")
	if !bound {
		d.Sessions.End(sess)
	}
	return nil
}

// inSession serves a request of a session.
func (d *Door) inSession(x *exchange.Exchange, r *http.Request, v *visit, id string) error {
	sess, release, err := d.use(v, id)
	if done, err := d.elsewhere(x, r, v, id, err); done || err != nil {
		return err
	}
	defer release()
	d.mu.Lock()
	transport := d.transports[sess]
	d.mu.Unlock()
	if transport == "" {
		return sessionNotFound(id)
	}
	v.session, v.spec = sess, sess.Spec
	d.serve(d.stateful, newWriter(x, d.KeepAlive), v, r, transport)
	return nil
}

// sessionNotFound returns the error upon which a client opens a new session.
func sessionNotFound(id string) error { return berth.NotFound("Session", rule.Clip(id)) }

// use returns the session of a client's id.
func (d *Door) use(v *visit, id string) (*session.Session, func(), error) {
	own, _, _ := strings.Cut(id, serverMark)
	sess, release, err := d.Sessions.Use(v.caller.Project, own)
	if err != nil {
		return nil, nil, sessionNotFound(id)
	}
	return sess, release, nil
}

// serverMark separates the id of a session from the name of its server, in a cluster.
const serverMark = "."

// publicID returns the id of a session for its client.
func (d *Door) publicID(sess *session.Session) string {
	if d.Placement.Alone() {
		return sess.ID
	}
	return sess.ID + serverMark + base64.RawURLEncoding.EncodeToString([]byte(d.Placement.Self()))
}

// elsewhere forwards a request whose session is not here to the server that its id names.
func (d *Door) elsewhere(x *exchange.Exchange, r *http.Request, v *visit, id string, err error) (done bool, _ error) {
	_, name, _ := strings.Cut(id, serverMark)
	server, bad := base64.RawURLEncoding.DecodeString(name)
	if err == nil || d.Placement.Alone() || exchange.IsForwarded(r.Context()) || bad != nil || len(server) == 0 ||
		string(server) == d.Placement.Self() {
		return false, err
	}
	alive, unknown := d.Placement.Alive(r.Context(), string(server))
	if unknown != nil || !alive {
		return false, cmp.Or(unknown, err)
	}
	return true, d.Placement.Forward(x, r, &v.caller, string(server))
}

// toContainer forwards a request that opens a session, or is without one, to the server of the container that it names.
func (d *Door) toContainer(x *exchange.Exchange, r *http.Request, v *visit) (done bool, err error) {
	if d.Placement.Alone() || exchange.IsForwarded(r.Context()) || v.name() == "" {
		return false, nil
	}
	id, err := d.Sessions.Existing(r.Context(), v.caller.Project, v.name())
	if id == "" || err != nil {
		return false, err
	}
	place, err := d.Placement.Where(r.Context(), cluster.Object{Project: v.caller.Project, Container: id}, cluster.Use)
	if err != nil || place.Server == "" {
		return false, err
	}
	return true, d.Placement.Forward(x, r, &v.caller, place.Server)
}

// bind records the SDK's id of a session.
func (d *Door) bind(sess *session.Session, transport string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.transports[sess], d.sessions[transport] = transport, sess
}

// forget ends the SDK's part of a session that has ended.
func (d *Door) forget(sess *session.Session) {
	d.mu.Lock()
	transport := d.transports[sess]
	delete(d.transports, sess)
	delete(d.sessions, transport)
	d.mu.Unlock()
	d.watches.leave(sess)
	if transport == "" {
		return
	}
	go func() {
		v := &visit{door: d}
		ctx := context.WithValue(context.Background(), visitKey{}, v)
		r, _ := http.NewRequestWithContext(ctx, http.MethodDelete, Path, http.NoBody) // a constant always parses
		r.Header.Set("Authorization", "Bearer -")
		r.Header.Set(sessionHeader, transport)
		d.stateful.ServeHTTP(discard{}, r)
	}()
}

// closed ends a session whose part the SDK has closed.
func (d *Door) closed(transport string) {
	d.mu.Lock()
	sess := d.sessions[transport]
	d.mu.Unlock()
	if sess != nil {
		d.Sessions.End(sess)
	}
}

// discard is an http.ResponseWriter for an answer that nobody reads.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}
