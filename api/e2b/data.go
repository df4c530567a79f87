package e2b

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/envd"
	"github.com/berth-run/berth/api/exchange"
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

// AtHost serves a request to the host of a port of a sandbox, {port}-{sandbox}.{domain}. It returns
// false for other hosts, and if d is nil. Such a host beats the headers of a request.
func (d *Door) AtHost(x *exchange.Exchange, r *http.Request) bool {
	if d == nil {
		return false
	}
	to, ok := parseHost(r.Host, d.Domain)
	if ok {
		d.data(x, r, to)
	}
	return ok
}

// Data serves a request of the data plane that names its sandbox by a header, or by the signature
// of a URL of a file, and uploads of files for templates. It returns false for other requests, and if d is nil.
func (d *Door) Data(x *exchange.Exchange, r *http.Request) bool {
	if d == nil {
		return false
	}
	to := address{sandbox: r.Header.Get(idHeader), port: envdPort, text: r.Header.Get(portHeader)}
	if to.text != "" {
		to.port = parsePort(to.text)
	}
	if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, UploadPath) {
		r.Pattern = "E2B upload"
		if err := d.upload(x, r); err != nil {
			refuse(x, r, err, writeError)
		}
		return true
	}
	if to.sandbox == "" && d.atContent(x, r) {
		return true
	}
	if to.sandbox == "" && (r.URL.Path != "/files" || !r.URL.Query().Has("signature")) {
		return false
	}
	if to.sandbox != "" {
		x.OnHeader(byHeader)
	}
	d.data(x, r, to)
	return true
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

// dataRoute is the route of requests of the data plane in metrics and logs.
const dataRoute = "E2B sandbox"

// data serves a request of the data plane.
func (d *Door) data(x *exchange.Exchange, r *http.Request, to address) {
	r.Pattern = dataRoute
	if err := d.serve(x, r, to); err != nil {
		refuse(x, r, err, writeError)
	}
}

// refuse answers with an error, which write writes unless it is a refusal. It breaks the connection if the answer has
// started, so that the client does not mistake a part for the whole.
func refuse(x *exchange.Exchange, r *http.Request, err error, write func(*exchange.Exchange, int, exchange.Error)) {
	var refused *refusal
	switch {
	case x.Started():
		x.Break(r.Context(), r.URL.Path, err)
	case errors.As(err, &refused):
		refused.write(x, r)
	default:
		x.WriteErrorsWith(write)
		x.Fail(r.Context(), r.URL.Path, err)
	}
}

// serve forwards a request to the sandbox that it names.
func (d *Door) serve(x *exchange.Exchange, r *http.Request, to address) error {
	if to.port == 0 {
		return &refusal{http.StatusBadRequest, failure{http.StatusBadRequest, "Invalid port '" + rule.Clip(to.text) +
			"'. Expected a number from 1 to 65535."}}
	}
	if to.sandbox != "" && !idPattern.MatchString(nameOf(idOf(to.sandbox))) {
		return gone(to.sandbox) // of another service
	}
	id, s, err := d.locate(r, to.sandbox)
	if err != nil {
		return err
	}
	ctx, done := d.Deadlines.Connect(r.Context(), id)
	defer done()
	r = r.WithContext(ctx)
	if to.port == envdPort {
		err = d.serveEnvd(x, r, id, s)
	} else {
		err = d.servePort(x, r, to, id, s)
	}
	if err == nil || x.Started() || !d.cut(ctx, s.Project, id, err) {
		return err
	}
	if to.port == interpreterPort && r.URL.Path == executePath {
		// E2B's answer has begun by now. Its clients look up the sandbox when an answer breaks off.
		x.WriteHeader(http.StatusOK)
		return errors.Join(err, http.NewResponseController(x).Flush())
	}
	return gone(nameOf(id))
}

// cut reports whether a request failed because its sandbox was paused or has ended.
func (d *Door) cut(ctx context.Context, p berth.ProjectID, id berth.ContainerID, err error) bool {
	if _, ok := errors.AsType[*refusal](err); ok {
		return false
	}
	if ctx.Err() != nil {
		return true
	}
	_, err = d.Deadlines.Container(ctx, p, id)
	return berth.ErrorCode(err) == berth.CodeNotFound
}

// serveEnvd serves a request to envd.
func (d *Door) serveEnvd(x *exchange.Exchange, r *http.Request, id berth.ContainerID, s deadline.Sandbox) error {
	path := strings.TrimPrefix(r.URL.Path, "/")
	key, err := d.authorize(r, s.Project, id, path)
	if err != nil {
		return err
	}
	if r.Method == http.MethodPost && envdChange.MatchString(path) {
		if err := x.CountWrite(r.Context(), s.Project); err != nil {
			return err
		}
	}
	r, release := x.WhileValid(r, berth.Caller{Project: s.Project, Key: key})
	defer release()
	if path != "health" {
		conns.Known(r.Context())
	}
	if err := d.Check(r.Context(), s.Project); err != nil {
		return err
	}
	if done, err := x.ToContainer(r, s.Project, id); done || err != nil {
		return err
	}
	own := ownPath(r, path)
	if !own && !envd.Serves(path) {
		return &refusal{http.StatusNotFound, failure{http.StatusNotFound, "This server does not serve " + r.Method +
			" /" + path + "."}}
	}
	if err := d.awake(r, s.Project, id, path == "health"); err != nil {
		return err
	}
	if own {
		return d.serveOwn(x, r, s.Project, id, path)
	}
	door, leave, err := d.Containers.Access().Door(r.Context(), x.SetCaller(berth.Caller{Project: s.Project}), id)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return gone(nameOf(id))
	}
	if err != nil {
		return err
	}
	defer leave()
	r.Header.Set("Berth-Directory", cmp.Or(s.Dir, "home")) // where commands without a directory start
	if user, _, _ := r.BasicAuth(); user == "" && s.User != "" {
		r.Header.Set(envd.UserHeader, s.User)
	}
	return envd.Pass(x, r, path, door, d.Log)
}

// envdChange matches the paths of envd with which a client starts or changes something. Input to a process that runs
// and reads are not counted, because a terminal sends each key alone.
var envdChange = regexp.MustCompile(
	`^(files|files/compose|process\.Process/Start|filesystem\.Filesystem/(MakeDir|Move|Remove))$`)

// locate returns the container of the sandbox that a request names or was signed for.
func (d *Door) locate(r *http.Request, name string) (berth.ContainerID, deadline.Sandbox, error) {
	id := idOf(name)
	if name == "" {
		var err error
		if id, err = d.signedFor(r); err != nil {
			return "", deadline.Sandbox{}, err
		}
	}
	s, ok, err := d.Deadlines.Find(r.Context(), id, func() bool {
		_, proved := d.minted(accessPurpose, string(id), r.Header.Get(tokenHeader))
		return proved
	})
	if err == nil && !ok {
		err = gone(name)
	}
	return id, s, err
}

// awake returns an error for a sandbox that is paused, unless requests resume it. A check of its
// health does not.
func (d *Door) awake(r *http.Request, p berth.ProjectID, id berth.ContainerID, health bool) error {
	rec, err := d.Deadlines.IfPaused(r.Context(), p, id)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return gone(nameOf(id))
	}
	if err != nil || rec == nil {
		return err
	}
	if !rec.AutoResume || health {
		return gone(nameOf(id))
	}
	if err := d.Deadlines.Resume(r.Context(), p, id); err != nil {
		return err
	}
	_, err = d.Deadlines.Update(r.Context(), p, id, func(rec *deadline.Record) error {
		if rec.Paused {
			d.Deadlines.SetResumed(p, id, rec, d.Now().Unix()+cmp.Or(rec.Timeout, defaultTimeout))
		}
		return nil
	})
	return err
}

// authorize checks the access token of a request, or the signature of its URL, and returns the key of its holder. What
// a signature does not cover has no effect: authorize removes the user that the header names.
func (d *Door) authorize(r *http.Request, p berth.ProjectID, id berth.ContainerID, path string) (berth.KeyID, error) {
	if path == "health" {
		return "", nil
	}
	if r.Header.Get(tokenHeader) != "" || path != "files" {
		key, ok, err := d.bearer(r, p, id)
		if err == nil && !ok {
			err = unauthorized("The access token is missing or wrong.")
		}
		return key, err
	}
	q := r.URL.Query()
	if !q.Has("signature") {
		return "", unauthorized("missing signature query parameter")
	}
	key, ok, err := d.signerOf(r.Context(), p, id, r.Method, q)
	if err == nil && !ok {
		err = unauthorized("invalid signature")
	}
	if err != nil {
		return "", err
	}
	if expires := q.Get("signature_expiration"); expires != "" {
		at, err := strconv.ParseInt(expires, 10, 64)
		if err != nil || at <= d.Now().Unix() {
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
func (d *Door) signedFor(r *http.Request) (berth.ContainerID, error) {
	id, ok, err := d.signed(r)
	if err == nil && !ok && !d.Placement.Alone() {
		if err = d.Deadlines.Discover(r.Context(), false); err == nil {
			id, ok, err = d.signed(r)
		}
	}
	if err == nil && !ok {
		err = unauthorized("invalid signature")
	}
	return id, err
}

// signed returns the sandbox that this server knows whose token has signed a URL.
func (d *Door) signed(r *http.Request) (berth.ContainerID, bool, error) {
	all := d.Deadlines.All()
	q := r.URL.Query()
	for id, s := range all {
		if _, ok, err := d.signerOf(r.Context(), s.Project, id, r.Method, q); ok || err != nil {
			return id, ok, err
		}
	}
	return "", false, nil
}
