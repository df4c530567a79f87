package e2b

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/envd"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/deadline"
	"github.com/berth-run/berth/internal/conns"
	"github.com/berth-run/berth/internal/rule"
)

// Headers of the data plane.
const (
	idHeader      = "E2b-Sandbox-Id"
	portHeader    = "E2b-Sandbox-Port"
	tokenHeader   = "X-Access-Token"
	trafficHeader = "E2b-Traffic-Access-Token"
	keyHeader     = "X-Api-Key"
)

// envdPort is the port at which clients expect envd.
const envdPort = 49983

// A dataPlane serves the requests that use a sandbox: to envd, to the code interpreter and to other ports.
type dataPlane struct {
	containers   *container.Service
	deadlines    *deadline.Service
	placement    cluster.Placement
	tokens       *tokens
	interpreters *interpreters
	meter        *meter
	proxy        *preview.Proxy // to ports
	domain       string         // parent domain of the host names of ports; empty serves them below localhost
	keys         exchange.Keys  // of the API, which no sandbox may see
	log          *slog.Logger
	now          func() time.Time
}

// routes returns the routes of the data plane. A host beats the headers of a request, which beat its path. The
// identity of a request is a token or the signature of its URL.
func (d *dataPlane) routes() []exchange.Route {
	const sandbox = "E2B sandbox"
	return []exchange.Route{
		{Path: sandbox, WriteError: writeError, Fail: refuse,
			Host: func(host string) bool {
				_, ok := parseHost(host, d.domain)
				return ok
			},
			Identity: func(x *exchange.Exchange, r *http.Request) (exchange.Visit, error) {
				to, _ := parseHost(r.Host, d.domain)
				return d.visit(x, r, to)
			}},
		{Path: sandbox, WriteError: writeError, Fail: refuse,
			Select: func(r *http.Request) bool { return r.Header.Get(idHeader) != "" },
			Identity: func(x *exchange.Exchange, r *http.Request) (exchange.Visit, error) {
				x.OnHeader(byHeader)
				to := address{sandbox: r.Header.Get(idHeader), port: envdPort, text: r.Header.Get(portHeader)}
				if to.text != "" {
					to.port = parsePort(to.text)
				}
				return d.visit(x, r, to)
			}},
		{Path: sandbox, WriteError: writeError, Fail: refuse,
			Select: func(r *http.Request) bool { return r.URL.Path == "/files" && r.URL.Query().Has("signature") },
			Identity: func(x *exchange.Exchange, r *http.Request) (exchange.Visit, error) {
				return d.visit(x, r, address{port: envdPort})
			}},
	}
}

// byHeader completes the header of an answer that a header has chosen. It is at an address of the API and the console,
// where no browser may keep it or run its scripts.
func byHeader(h http.Header) {
	h.Set("Cache-Control", "no-store")
	for name, value := range map[string]string{"Vary": idHeader + ", " + portHeader,
		"Content-Security-Policy": "sandbox"} {
		if !slices.Contains(h.Values(name), value) { // another server of the cluster may have set it
			h.Add(name, value)
		}
	}
}

// idPattern matches the ids of sandboxes.
var idPattern = regexp.MustCompile(`^[0-9a-f]{48}$`)

// An address is what a request of the data plane names.
type address struct {
	sandbox string // its id; empty if the URL is signed
	port    int    // 0 if it is not a port
	text    string // the port as the client wrote it
}

// refuse answers with an error. It breaks the connection if the answer has started, so that the client does not
// mistake a part for the whole.
func refuse(x *exchange.Exchange, r *http.Request, err error) {
	var refused *refusal
	switch {
	case x.Started():
		x.Break(r, err)
	case errors.As(err, &refused):
		refused.write(x, r)
	default:
		x.Fail(r, err)
	}
}

// visit identifies the caller of a request to a sandbox, and returns the request's handler.
func (d *dataPlane) visit(x *exchange.Exchange, r *http.Request, to address) (v exchange.Visit, err error) {
	if to.port == 0 {
		return v, &refusal{http.StatusBadRequest, failure{http.StatusBadRequest, "Invalid port '" + rule.Clip(to.text) +
			"'. Expected a number from 1 to 65535."}}
	}
	if to.sandbox != "" && !idPattern.MatchString(nameOf(idOf(to.sandbox))) {
		return v, gone(to.sandbox) // of another service
	}
	id, s, err := d.locate(r, to.sandbox)
	if err != nil {
		return v, err
	}
	at := target{to, id, s}
	serve := d.servePort
	switch to.port {
	case envdPort:
		serve, v.Traits = d.serveEnvd, envd.Limits(r.Method, envdPath(r))
		if envdPath(r) == initPath {
			return v, &refusal{http.StatusNotFound, failure{http.StatusNotFound,
				"/" + initPath + " is reserved for the E2B control plane. This server does not serve it."}}
		}
		if v.Caller.Key, err = d.authorize(r, s.Project, id); err == nil {
			err = checkEnvdPath(r)
		} else {
			err = d.whilePaused(r, at, err)
		}
	case interpreterPort:
		serve, v.Traits = d.interpreters.serve, interpreterTraits(r)
		if v.Caller.Key, err = d.mayVisit(r, at); err == nil {
			v.Caller.Key, err = d.interpreters.admit(r, at)
		}
	default:
		v.Traits = exchange.ThroughContainer
		v.Caller.Key, err = d.mayVisit(r, at)
	}
	if err != nil {
		return v, err
	}
	if to.port != envdPort || !at.isHealthCheck(r) {
		conns.Known(r.Context())
	}
	v.Caller.Project = s.Project
	v.Handle = func(x *exchange.Exchange, r *http.Request, _ berth.Caller) error { return d.serve(x, r, at, serve) }
	return v, nil
}

// A target is the sandbox that a request of the data plane uses, and the address that names it.
type target struct {
	address
	id berth.ContainerID
	deadline.Sandbox
}

// isHealthCheck reports whether a request only asks for the health of the sandbox, which does not resume it.
func (t target) isHealthCheck(r *http.Request) bool {
	return t.port == envdPort && envdPath(r) == healthPath || t.port == interpreterPort && isHealthCheck(r)
}

// caller returns the caller of a request for what it does in the sandbox.
func (t target) caller(x *exchange.Exchange) berth.Caller {
	return berth.Caller{Project: t.Project, RequestID: x.RequestID()}
}

// serve serves a request to a sandbox, which may be paused or end before the answer.
func (d *dataPlane) serve(x *exchange.Exchange, r *http.Request, to target,
	handle func(*exchange.Exchange, *http.Request, target) error) error {
	ctx, done := d.deadlines.Connect(r.Context(), to.id)
	defer done()
	r = r.WithContext(ctx)
	forwarded, err := x.ToContainer(r, to.Project, to.id)
	if !forwarded && err == nil {
		if err = d.awake(r, to); err == nil {
			err = handle(x, r, to)
		}
	}
	if err == nil || x.Started() || !d.cut(ctx, to.Project, to.id, err) {
		return err
	}
	if to.port == interpreterPort && r.URL.Path == executePath {
		// E2B's answer has begun by now. Its clients look up the sandbox when an answer breaks off.
		x.WriteHeader(http.StatusOK)
		return errors.Join(err, http.NewResponseController(x).Flush())
	}
	return gone(nameOf(to.id))
}

// cut reports whether a request failed because its sandbox was paused or has ended.
func (d *dataPlane) cut(ctx context.Context, p berth.ProjectID, id berth.ContainerID, err error) bool {
	if _, ok := errors.AsType[*refusal](err); ok {
		return false
	}
	if ctx.Err() != nil {
		return berth.ErrorCode(context.Cause(ctx)) != berth.CodeUnauthorized // the key has ended
	}
	_, err = d.deadlines.Container(ctx, p, id)
	return berth.ErrorCode(err) == berth.CodeNotFound
}

// serveEnvd serves a request to envd.
func (d *dataPlane) serveEnvd(x *exchange.Exchange, r *http.Request, to target) error {
	path := envdPath(r)
	if ownPath(r, path) {
		return d.serveOwn(x, r, to.Project, to.id, path)
	}
	door, leave, err := d.containers.Access().Door(r.Context(), to.caller(x), to.id)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return gone(nameOf(to.id))
	}
	if err != nil {
		return err
	}
	defer leave()
	r.Header.Set("Berth-Directory", cmp.Or(to.Dir, "home")) // where commands without a directory start
	if user, _, _ := r.BasicAuth(); user == "" && to.User != "" {
		r.Header.Set(envd.UserHeader, to.User)
	}
	return envd.Pass(x, r, path, door, d.log)
}

// checkEnvdPath refuses a request to a path that envd does not have for clients.
func checkEnvdPath(r *http.Request) error {
	path := envdPath(r)
	if ownPath(r, path) || envd.Serves(path) {
		return nil
	}
	return &refusal{http.StatusNotFound, failure{http.StatusNotFound, "This server does not serve " + r.Method + " /" +
		path + "."}}
}

// envdPath returns the path of a request to envd.
func envdPath(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") }

// healthPath is the path of checks of health, which need no token.
const healthPath = "health"

// initPath is the path by which E2B's control plane sets up envd. Nobody has it, whatever their token.
const initPath = "init"

// locate returns the container of the sandbox that a request names or was signed for.
func (d *dataPlane) locate(r *http.Request, name string) (berth.ContainerID, deadline.Sandbox, error) {
	id := idOf(name)
	if name == "" {
		var err error
		if id, err = d.signedFor(r); err != nil {
			return "", deadline.Sandbox{}, err
		}
	}
	s, ok, err := d.deadlines.Find(r.Context(), id, func() bool {
		_, proved := d.tokens.minted(accessPurpose, string(id), r.Header.Get(tokenHeader))
		return proved
	})
	if err == nil && !ok {
		err = gone(name)
	}
	return id, s, err
}

// awake returns an error for a sandbox that is paused, unless requests resume it. A check of its
// health does not.
func (d *dataPlane) awake(r *http.Request, to target) error {
	rec, err := d.deadlines.IfPaused(r.Context(), to.Project, to.id)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return gone(nameOf(to.id))
	}
	if err != nil || rec == nil {
		return err
	}
	if !rec.AutoResume || rec.FilesOnly || to.port == interpreterPort && isHealthCheck(r) {
		return gone(nameOf(to.id)) // only connect starts one anew
	}
	if to.isHealthCheck(r) { // it needs no token while the sandbox runs
		if _, ok, err := d.tokens.bearer(r, to.Project, to.id); err != nil || !ok {
			return cmp.Or(err, mayNotResume(to.id))
		}
	}
	done, err := d.deadlines.Turn(r.Context(), to.id)
	if err != nil {
		return err
	}
	defer done()
	if rec, err = d.deadlines.IfPaused(r.Context(), to.Project, to.id); err != nil || rec == nil {
		return err // another request has resumed it
	}
	if err := d.deadlines.Resume(r.Context(), to.Project, to.id, rec); err != nil {
		return err
	}
	_, err = d.deadlines.Update(r.Context(), to.Project, to.id, func(rec *deadline.Record) error {
		if rec.Paused {
			d.deadlines.SetResumed(to.Project, to.id, rec, d.now().Unix()+cmp.Or(rec.Timeout, defaultTimeout))
		}
		return nil
	})
	return err
}

// whilePaused returns the error for a request without a valid token. As with E2B, it has another status while the
// sandbox waits for a request that resumes it.
func (d *dataPlane) whilePaused(r *http.Request, to target, refused error) error {
	if e, ok := errors.AsType[*refusal](refused); !ok || e.status != http.StatusUnauthorized {
		return refused
	}
	rec, err := d.deadlines.IfPaused(r.Context(), to.Project, to.id)
	if err == nil && rec != nil && rec.AutoResume && !rec.FilesOnly {
		return mayNotResume(to.id)
	}
	return refused
}

// authorize checks the access token of a request, or the signature of its URL, and returns the key of its holder. What
// a signature does not cover has no effect: authorize removes the user that the header names.
func (d *dataPlane) authorize(r *http.Request, p berth.ProjectID, id berth.ContainerID) (berth.KeyID, error) {
	path := envdPath(r)
	if path == healthPath {
		return "", nil
	}
	if r.Header.Get(tokenHeader) != "" || path != "files" {
		key, ok, err := d.tokens.bearer(r, p, id)
		if err == nil && !ok {
			err = unauthorized("The access token is missing or wrong.")
		}
		return key, err
	}
	q := r.URL.Query()
	if !q.Has("signature") {
		return "", unauthorized("missing signature query parameter")
	}
	key, ok, err := d.tokens.signerOf(r.Context(), p, id, r.Method, q)
	if err == nil && !ok {
		err = unauthorized("invalid signature")
	}
	if err != nil {
		return "", err
	}
	if expires := q.Get("signature_expiration"); expires != "" {
		at, err := strconv.ParseInt(expires, 10, 64)
		if err != nil || at <= d.now().Unix() {
			return "", unauthorized("signature is already expired")
		}
	}
	r.Header.Del("Authorization")
	r.Header.Del(envd.UserHeader)
	return key, nil
}

// sign returns the signature of a request for a file with a token.
func sign(method string, q url.Values, token string) string {
	operation := "read"
	if method == http.MethodPost {
		operation = "write"
	}
	text := q.Get("path") + ":" + operation + ":" + q.Get("username") + ":" + token
	if expires := q.Get("signature_expiration"); expires != "" {
		text += ":" + expires
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// signedFor returns the sandbox whose token has signed a URL. Such a URL does not name it.
func (d *dataPlane) signedFor(r *http.Request) (berth.ContainerID, error) {
	id, ok, err := d.signed(r)
	if err == nil && !ok && !d.placement.Alone() {
		if err = d.deadlines.Discover(r.Context(), false); err == nil {
			id, ok, err = d.signed(r)
		}
	}
	if err == nil && !ok {
		err = unauthorized("invalid signature")
	}
	return id, err
}

// signed returns the sandbox that this server knows whose token has signed a URL.
func (d *dataPlane) signed(r *http.Request) (berth.ContainerID, bool, error) {
	all := d.deadlines.All()
	q := r.URL.Query()
	for id, s := range all {
		if _, ok, err := d.tokens.signerOf(r.Context(), s.Project, id, r.Method, q); ok || err != nil {
			return id, ok, err
		}
	}
	return "", false, nil
}
