// Package preview serves the ports of sandboxes to programs and browsers.
//
// The server in a sandbox is untrusted. Unless it has a host of its own (host.go), it shares
// an origin with the API. So a Content-Security-Policy gives each of its answers a unique
// origin, headers that affect more than their page are removed (header.go), its cookies get
// a prefix (cookie.go), and it can redirect only to itself or, for clients without an API
// key, to a public host (location.go).
package preview

import (
	"cmp"
	"context"
	"crypto/tls"
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
	"github.com/berth-run/berth/internal/forward"
)

// Limits of requests to a sandbox.
const (
	maxRequests = 256              // concurrent requests to one container, including WebSockets
	headerTime  = 10 * time.Minute // until the header of an answer
	idleTime    = time.Hour        // without a byte in either direction
	maxHeader   = 64 << 10         // bytes of an answer's header
)

// A Target is the port of a container to which a request goes.
type Target struct {
	Container berth.ContainerID
	Port      int
	Dial      func(context.Context) (net.Conn, error) // to the port

	Prefix string // prefix of the URL's path, without a trailing slash
	Path   string // escaped path of the request to the sandbox, with a leading slash

	// Link means that the URL itself gives access: pages of any origin that know it may read
	// the answer.
	Link bool

	// Own means that the port has a host, and so an origin, of its own.
	Own bool

	// Keyed means that the client has sent an API key, or needs none because it is on this
	// machine. Redirects must then stay on the same port.
	Keyed bool

	// Public means that anyone may use the port. Its server then decides itself which pages of
	// other origins may read, embed and frame its answers.
	Public bool

	// Host is the Host header that the server in the sandbox gets. The default is localhost:PORT.
	Host string

	// Strip removes from a copy of the request what only this server may get; nil is nothing.
	Strip func(*http.Request)

	// TLS means that the server in the sandbox expects TLS. Its certificate is not verified: it is
	// as trusted as the server itself.
	TLS bool
}

// host returns the Host header that the server in the sandbox gets.
func (t Target) host() string {
	return cmp.Or(t.Host, net.JoinHostPort("localhost", strconv.Itoa(t.Port)))
}

// A Proxy forwards requests to sandboxes. It is safe for concurrent use.
type Proxy struct {
	log       *slog.Logger
	transport *http.Transport

	mu      sync.Mutex
	current map[berth.ContainerID]int // number of requests in progress
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
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, // of Target.TLS only
		DisableCompression:     true,
		MaxIdleConnsPerHost:    8,
		MaxIdleConns:           512,
		IdleConnTimeout:        30 * time.Second,
		ResponseHeaderTimeout:  headerTime,
		MaxResponseHeaderBytes: maxHeader,
	}}
}

// Serve forwards a request to the target and its answer to the client. If it returns an
// error, it has not answered. An error that is a *berth.Error is for the client.
func (p *Proxy) Serve(w http.ResponseWriter, r *http.Request, t Target) error {
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace:
		return berth.Errorf(berth.CodeInvalid, "The method %s is not supported for ports.", r.Method)
	case r.Header.Get("Service-Worker") != "" && !t.Own:
		return berth.Errorf(berth.CodeForbidden, "Service workers are only supported under a port's own host.")
	case t.Link && preflight(w, r):
		return nil
	}
	if !p.enter(t.Container) {
		return berth.Errorf(berth.CodeRateLimited,
			"Container with id '%s' has reached the limit of %d concurrent requests to its ports. Try again later.",
			t.Container, maxRequests)
	}
	defer p.leave(t.Container)

	r = r.WithContext(context.WithValue(r.Context(), dialKey{}, t.Dial))
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		r.Header.Del("Upgrade") // such as to HTTP/2
	}
	var failed error
	proxy := httputil.ReverseProxy{
		Transport:      Final(p.transport),
		Rewrite:        func(pr *httputil.ProxyRequest) { rewrite(pr, t) },
		ModifyResponse: func(resp *http.Response) error { return clean(resp, r, t) },
		FlushInterval:  -1, // flush each write
		ErrorHandler:   func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
		ErrorLog:       slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	forward.Serve(proxy, w, r)
	if failed == nil {
		return nil
	}
	if e, ok := errors.AsType[*berth.Error](failed); ok {
		return e
	}
	return &berth.Error{Code: berth.CodeUpstream, Wire: "port_failed", Err: failed,
		Message: "The server on port " + strconv.Itoa(t.Port) + " of container with id '" + string(t.Container) +
			"' did not send a valid HTTP answer."}
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

// rewrite rewrites a request for the sandbox.
func rewrite(pr *httputil.ProxyRequest, t Target) {
	host := t.host()
	upgrade := pr.Out.Header.Get("Upgrade")
	pr.Out.Header = requestHeader(pr.In, t)
	if upgrade != "" {
		pr.Out.Header.Set("Connection", "Upgrade")
		pr.Out.Header.Set("Upgrade", upgrade)
	}
	pr.Out.Host = host
	// The transport reuses idle connections by the host of the URL.
	pr.Out.URL = &url.URL{Scheme: "http", Host: net.JoinHostPort(string(t.Container), strconv.Itoa(t.Port)),
		RawQuery: pr.In.URL.RawQuery}
	if t.TLS {
		pr.Out.URL.Scheme = "https"
	}
	pr.Out.URL.RawPath = t.Path
	pr.Out.URL.Path, _ = url.PathUnescape(t.Path) // t.Path is from a parsed URL
}

// preflight answers a CORS preflight request. It returns false for other requests.
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

// Impatient returns a connection that closes after idleTime without a byte.
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

// CloseWrite closes the connection for writing only.
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

// body is the body of an answer without trailers.
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
