package api

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/preview"
	"github.com/berth-run/berth/guest"
)

// guestPaths are the services of a guest that clients can reach: E2B's envd services for
// processes and files. Its other services are for this server alone.
var guestPaths = regexp.MustCompile(`^(health|files|process\.Process/[A-Za-z]+|filesystem\.Filesystem/[A-Za-z]+)$`)

// The headers of a request and of an answer that are passed on, in lower case. The request's
// other headers hold the caller's key; the answer's are written by what runs in the
// sandbox.
var (
	guestRequestHeader = regexp.MustCompile(`^(accept|accept-encoding|connect-.+|content-encoding|content-type|if-.+|keepalive-ping-interval|range|x-metadata-.+)$`)
	guestAnswerHeader  = regexp.MustCompile(`^(accept-ranges|connect-.+|content-encoding|content-length|content-range|content-type|etag|last-modified|vary)$`)
	guestAnswerType    = regexp.MustCompile(`^application/(json|proto|connect\+json|connect\+proto)$`)
)

// userHeader names the user in the sandbox that a request to the guest acts for, as the user
// name of Basic authorization does in E2B's protocol. Here Authorization is the API key's.
const userHeader = "Berth-User"

// guest passes a request on to the guest of a container, which does not expire while the
// answer lasts. It serves berth exec, attach and cp.
func (h *containers) guest(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	path := r.PathValue("path")
	if !guestPaths.MatchString(path) {
		return berth.Errorf(berth.CodeNotFound, "This server does not serve %s %s.", r.Method, r.URL.Path)
	}
	door, release, err := h.service.Access().Door(r.Context(), c, containerID(r))
	if err != nil {
		return err
	}
	defer release()
	return passToGuest(x, r, path, door, h.log)
}

// passToGuest passes a request on to a path of the guest behind door.
func passToGuest(x *exchange.Exchange, r *http.Request, path string, door http.RoundTripper, log *slog.Logger) error {
	r, done, err := x.Duplex(r)
	if err != nil {
		return err
	}
	defer done()
	out := x.Patient()
	defer out.Renew() // the last bytes leave after the handler
	var failed error
	proxy := httputil.ReverseProxy{
		Rewrite:        func(pr *httputil.ProxyRequest) { rewriteForGuest(pr, path) },
		Transport:      preview.Final(door),
		FlushInterval:  -1, // at once
		ModifyResponse: cleanGuestAnswer,
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(out, r)
	if failed != nil {
		return &berth.Error{Code: berth.CodeUnavailable, Message: "The container did not answer.", Err: failed}
	}
	return nil
}

// rewriteForGuest makes the request that the guest gets: to this path, with what
// it needs of the header and no more.
func rewriteForGuest(pr *httputil.ProxyRequest, path string) {
	in := pr.In.Header
	out := http.Header{"User-Agent": {"berth"}}
	for name, values := range in {
		if guestRequestHeader.MatchString(strings.ToLower(name)) {
			out[name] = values
		}
	}
	pr.Out.Header = out
	if path == "files" && pr.Out.Body != nil {
		pr.Out.Body, pr.Out.ContentLength = guest.InFrames(pr.Out.Body), -1
	}
	user := in.Get(userHeader)
	if user == "" {
		user, _, _ = pr.In.BasicAuth()
	}
	if user != "" {
		pr.Out.SetBasicAuth(user, "")
	}
	pr.Out.Host = "guest"
	pr.Out.URL = &url.URL{Scheme: "http", Host: "guest", Path: "/" + path, RawQuery: pr.In.URL.RawQuery}
}

// cleanGuestAnswer removes from an answer of the guest what a client, above all a browser,
// must not get from a sandbox.
func cleanGuestAnswer(resp *http.Response) error {
	if resp.StatusCode < http.StatusOK {
		return errors.New("the guest answered " + resp.Status)
	}
	for name := range resp.Header {
		if !guestAnswerHeader.MatchString(strings.ToLower(name)) {
			delete(resp.Header, name)
		}
	}
	resp.Trailer = nil
	if !guestAnswerType.MatchString(resp.Header.Get("Content-Type")) {
		resp.Header.Set("Content-Type", "application/octet-stream")
	}
	resp.Header.Set("Content-Disposition", "attachment")
	resp.Header.Set("Content-Security-Policy", "sandbox")
	resp.Header.Set("X-Content-Type-Options", "nosniff")
	return nil
}
