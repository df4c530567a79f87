// Package preview is the door to what a sandbox serves on a port. Some of its clients are
// browsers, which must not take that for a part of the API.
//
// The server in the sandbox is hostile. Unless it has a host of its own (host.go), it shares
// an origin with the API. So every answer gets an origin of its own from a
// Content-Security-Policy; headers that act beyond their page are removed (header.go); its
// cookies are distinguished by their names (cookie.go); and it can redirect only to itself,
// or without an API key to a public host (location.go).
package preview

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth"
)

// Bounds of what a sandbox may take.
const (
	maxRequests = 256              // of one container at once, WebSockets among them
	headerTime  = 10 * time.Minute // until the header of an answer
	idleTime    = time.Hour        // without a byte in either direction
	maxHeader   = 64 << 10         // of an answer, in bytes
)

// A Target is a port of a container, as one request names it.
type Target struct {
	Container berth.ContainerID
	Port      int
	Dial      func(context.Context) (net.Conn, error) // to the port

	Prefix string // of the URL's path, without the last slash: the port is shown below it
	Path   string // of the request to the sandbox, as escaped in the URL, with its first slash

	// Link means that the URL is the permission, not the caller: pages of any origin that
	// know it may read the answer.
	Link bool

	// Own means that the port has a host of its own, and so an origin.
	Own bool

	// Keyed means that the client sends an API key, or is served without one because it
	// is on this machine: a redirect that it follows must stay with the port.
	Keyed bool
}

// A Proxy passes requests on to sandboxes. It is safe for concurrent use.
type Proxy struct {
	log       *slog.Logger
	transport *http.Transport

	mu      sync.Mutex
	current map[berth.ContainerID]int // requests that are being answered
}

type dialKey struct{}

// New returns a proxy.
func New(log *slog.Logger) *Proxy {
	return &Proxy{log: log, current: map[berth.ContainerID]int{}, transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := ctx.Value(dialKey{}).(func(context.Context) (net.Conn, error))(ctx)
			if err != nil {
				return nil, err
			}
			return Impatient(conn), nil
		},
		DisableCompression:     true,
		MaxIdleConnsPerHost:    8,
		MaxIdleConns:           512,
		IdleConnTimeout:        30 * time.Second,
		ResponseHeaderTimeout:  headerTime,
		MaxResponseHeaderBytes: maxHeader,
	}}
}

// Serve answers a request with what the target says. An error means that nothing
// was answered; it is for the client if it is a *berth.Error.
func (p *Proxy) Serve(w http.ResponseWriter, r *http.Request, t Target) error {
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		return berth.Errorf(berth.CodeInvalid, "The method %s is not for ports.", r.Method)
	case r.Header.Get("Service-Worker") != "" && !t.Own:
		return berth.Errorf(berth.CodeForbidden, "Previews have no service workers.")
	case t.Link && preflight(w, r):
		return nil
	}
	if !p.enter(t.Container) {
		return berth.Errorf(berth.CodeRateLimited, "Container with id '%s' is answering %d requests on its ports already.", t.Container, maxRequests)
	}
	defer p.leave(t.Container)

	r = r.WithContext(context.WithValue(r.Context(), dialKey{}, t.Dial))
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		r.Header.Del("Upgrade") // to HTTP/2, for example
	}
	var failed error
	proxy := httputil.ReverseProxy{
		Transport:      Final(p.transport),
		Rewrite:        func(pr *httputil.ProxyRequest) { rewrite(pr, t) },
		ModifyResponse: func(resp *http.Response) error { return clean(resp, r, t) },
		FlushInterval:  -1, // at once
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
		ErrorLog:       slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(w, r)
	if failed == nil {
		return nil
	}
	if e, ok := errors.AsType[*berth.Error](failed); ok {
		return e
	}
	return &berth.Error{Code: berth.CodeUpstream, Wire: "port_failed", Err: failed,
		Message: "What listens on port " + strconv.Itoa(t.Port) + " of container with id '" + string(t.Container) + "' did not answer in HTTP."}
}

func (p *Proxy) enter(id berth.ContainerID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current[id] >= maxRequests {
		return false
	}
	p.current[id]++
	return true
}

func (p *Proxy) leave(id berth.ContainerID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current[id]--; p.current[id] == 0 {
		delete(p.current, id)
	}
}

// rewrite makes the request that the sandbox gets.
func rewrite(pr *httputil.ProxyRequest, t Target) {
	host := net.JoinHostPort("localhost", strconv.Itoa(t.Port))
	upgrade := pr.Out.Header.Get("Upgrade")
	pr.Out.Header = requestHeader(pr.In, t, host)
	if upgrade != "" {
		pr.Out.Header.Set("Connection", "Upgrade")
		pr.Out.Header.Set("Upgrade", upgrade)
	}
	pr.Out.Host = host
	// The host of the URL distinguishes idle connections.
	pr.Out.URL = &url.URL{Scheme: "http", Host: net.JoinHostPort(string(t.Container), strconv.Itoa(t.Port)), RawQuery: pr.In.URL.RawQuery}
	pr.Out.URL.RawPath = t.Path
	pr.Out.URL.Path, _ = url.PathUnescape(t.Path) // of a URL that was parsed
}

// preflight answers a CORS preflight request.
func preflight(w http.ResponseWriter, r *http.Request) bool {
	method := r.Header.Get("Access-Control-Request-Method")
	if r.Method != http.MethodOptions || method == "" || r.Header.Get("Origin") == "" {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Methods", method)
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
		h.Set("Access-Control-Allow-Headers", names)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// Impatient returns a connection that ends after an hour without a byte.
func Impatient(c net.Conn) net.Conn {
	i := &impatient{Conn: c}
	i.timer = time.AfterFunc(idleTime, func() { c.Close() })
	return i
}

type impatient struct {
	net.Conn
	timer *time.Timer
}

func (i *impatient) Read(p []byte) (int, error) {
	n, err := i.Conn.Read(p)
	if n > 0 {
		i.timer.Reset(idleTime)
	}
	return n, err
}

func (i *impatient) Write(p []byte) (int, error) {
	n, err := i.Conn.Write(p)
	if n > 0 {
		i.timer.Reset(idleTime)
	}
	return n, err
}

// CloseWrite ends the writing; reading goes on.
func (i *impatient) CloseWrite() error {
	if c, ok := i.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (i *impatient) Close() error {
	i.timer.Stop()
	return i.Conn.Close()
}

// A body is an answer's, without the trailers that may come after it.
type body struct {
	io.ReadCloser
	of *http.Response
}

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.of.Trailer = nil
	}
	return n, err
}
