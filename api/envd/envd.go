// Package envd forwards requests of clients to the services of a container's guest that speak the
// protocol of E2B's envd.
package envd

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
	"github.com/berth-run/berth/internal/forward"
)

// guestPaths matches the services of a guest that clients may use: E2B's envd services for
// processes and files. The guest's other services are for this server only.
var guestPaths = regexp.MustCompile(
	`^(health|files|files/compose|process\.Process/[A-Za-z]+|filesystem\.Filesystem/[A-Za-z]+)$`)

// The headers of a request and of an answer that are forwarded, in lower case. Other headers
// of the request could contain the caller's key; those of the answer are under the control
// of programs in the sandbox.
var (
	guestRequestHeader = regexp.MustCompile(
		`^(accept|accept-encoding|berth-directory|berth-replay|connect-.+|content-encoding|content-type|if-.+|keepalive-ping-interval|range|x-metadata-.+)$`)
	guestAnswerHeader = regexp.MustCompile(
		`^(accept-ranges|connect-.+|content-encoding|content-length|content-range|content-type|etag|last-modified|vary)$`)
	guestAnswerType = regexp.MustCompile(`^application/(json(; charset=utf-8)?|proto|connect\+json|connect\+proto)$`)
)

// Paths with which a client writes files, and with which it starts or changes something else. Input to a process that
// runs and reads are not counted, because a terminal sends each key alone.
var (
	guestWrite  = regexp.MustCompile(`^files(/compose)?$`)
	guestChange = regexp.MustCompile(`^(process\.Process/Start|filesystem\.Filesystem/(MakeDir|Move|Remove))$`)
)

// Limits returns the limits of a request to a path of the guest. The sandbox's own disk bounds what it stores.
func Limits(method, path string) exchange.Traits {
	switch {
	case method == http.MethodPost && guestWrite.MatchString(path):
		return exchange.StoresNothing
	case method == http.MethodPost && guestChange.MatchString(path):
		return exchange.StoresNothing | exchange.StoresLittle
	}
	return exchange.ThroughContainer
}

// UserHeader selects the user in the sandbox for a request to the guest. E2B's protocol uses
// the user name of Basic authorization, but here Authorization contains the API key.
const UserHeader = "Berth-User"

// Serves reports whether clients may use a path of the guest, without its leading slash.
func Serves(path string) bool { return guestPaths.MatchString(path) }

// Pass forwards a request to a path of the guest, which Serves must accept. door connects to the guest.
func Pass(x *exchange.Exchange, r *http.Request, path string, door http.RoundTripper, log *slog.Logger) error {
	r, done, err := x.Duplex(r)
	if err != nil {
		return err
	}
	defer done()
	out := x.Patient()
	defer out.Renew() // the server sends the last bytes after the handler returns
	var failed error
	proxy := httputil.ReverseProxy{
		Rewrite:        func(pr *httputil.ProxyRequest) { rewriteForGuest(pr, path) },
		Transport:      preview.Final(door),
		FlushInterval:  -1, // flush each write
		ModifyResponse: cleanGuestAnswer,
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	forward.Serve(proxy, out, r)
	if failed != nil {
		return &berth.Error{Code: berth.CodeUnavailable, Message: "The container did not answer.", Err: failed}
	}
	return nil
}

// queryForGuest returns the parameters of a request that the guest gets: what the signature of a URL covers.
func queryForGuest(in url.Values, path string) string {
	out := url.Values{}
	for _, name := range []string{"path", "username"} {
		if path == "files" && in.Has(name) {
			out.Set(name, in.Get(name))
		}
	}
	return out.Encode()
}

// rewriteForGuest rewrites a request for the guest: to the given path, and with only those
// parameters and headers that the guest needs.
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
	user := in.Get(UserHeader)
	if user == "" {
		user, _, _ = pr.In.BasicAuth()
	}
	if user != "" {
		pr.Out.SetBasicAuth(user, "")
	}
	pr.Out.Host = "guest"
	pr.Out.URL = &url.URL{Scheme: "http", Host: "guest", Path: "/" + path, RawQuery: queryForGuest(pr.In.URL.Query(),
		path)}
}

// cleanGuestAnswer removes headers from the guest's answer with which programs in the sandbox
// could attack a client, above all a browser.
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
