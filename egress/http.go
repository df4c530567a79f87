package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth/egress/proxy"
)

// asksProxy returns the proxy that gets requests as they are, not through a tunnel, or nil. A tunnel leads to one host,
// a request of plain HTTP to the one that it names. So an address, at which any name is allowed, needs a tunnel.
func (c *crossing) asksProxy(scheme string) *proxy.Server {
	via := c.gate.proxyFor(c.ctx, c.target)
	if via == nil || scheme != "http" || c.tunneled || c.decision.Address || !via.Requests() {
		return nil
	}
	return via
}

// serveHTTP forwards plain HTTP requests. Each must name the allowed host. The first request
// uses the connection host, if it is not nil.
func (c *crossing) serveHTTP(client *countedConn, what fills, host net.Conn) error {
	_ = client.SetReadDeadline(time.Time{})
	c.tunneled = host != nil
	var first sync.Once
	return c.proxy(client, "http", what, func(ctx context.Context) (conn net.Conn, err error) {
		first.Do(func() { conn = host })
		if conn != nil {
			return conn, nil
		}
		return c.dial(ctx)
	})
}

// intercept terminates the client's TLS with a certificate that only its container trusts,
// and opens another TLS connection to the host.
func (c *crossing) intercept(client net.Conn, what fills) error {
	own := tls.Server(client, &tls.Config{GetCertificate: c.gate.CA.certificate(c.target.Host),
		NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12})
	ctx, cancel := context.WithTimeout(context.Background(), firstTime)
	defer cancel()
	if err := own.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS handshake with the client: %w", err)
	}
	return c.proxy(own, "https", what, c.dial)
}

// Bounds on the header of a request as received and on what may be filled in, and on the
// header of a response: the sandbox may control the host, too.
const (
	maxHeader       = 64 << 10
	maxHeaderFill   = 128 << 10
	maxAnswerHeader = 128 << 10
)

// proxy serves the requests on one connection of a client. It returns the last refusal, if
// any.
func (c *crossing) proxy(client net.Conn, scheme string, what fills, dial func(context.Context) (net.Conn,
	error)) error {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		TLSClientConfig: &tls.Config{RootCAs: c.gate.Roots, ServerName: c.target.Host,
			MinVersion: tls.VersionTLS12},
		DisableCompression:    true,
		MaxIdleConnsPerHost:   1,
		ResponseHeaderTimeout: idleTime,

		MaxResponseHeaderBytes: maxAnswerHeader,
	}
	via := c.asksProxy(scheme)
	if via != nil {
		transport.Proxy = http.ProxyURL(via.URL())
		tunnel := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != via.String() {
				return tunnel(ctx, network, address)
			}
			if err := c.gate.mayAsk(c.decision, c.target); err != nil {
				return nil, err
			}
			conn, err := via.Connect(ctx)
			if err == nil {
				c.reached(netip.Addr{}, via.String())
			}
			return conn, err
		}
	}
	defer transport.CloseIdleConnections()
	c.answered = true
	gathered := &gatherer{Conn: client, gate: c.gate}
	f := &forwarder{crossing: c, client: gathered, scheme: scheme, fills: what, mask: c.gate.mask(), asks: via != nil}
	f.proxy = &httputil.ReverseProxy{
		Transport:      f.signing(transport),
		FlushInterval:  -1,
		BufferPool:     proxyBuffers{c.gate},
		ErrorLog:       log.New(io.Discard, "", 0),
		Rewrite:        f.rewrite,
		ModifyResponse: f.hide,
		ErrorHandler:   f.fail,
	}
	server := &http.Server{ReadHeaderTimeout: firstTime, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(io.Discard, "", 0), Handler: f}
	only := newOneListener(gathered)
	server.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			only.Close()
		}
	}
	_ = server.Serve(only)
	only.wait()
	return f.refused
}

// A forwarder forwards the requests of one connection to the allowed host. It fills in secrets
// and masks them in the responses.
type forwarder struct {
	crossing *crossing
	client   *gatherer
	scheme   string
	fills    fills
	fields   http.Header // that the transform sets in the present request
	tokens   []Secret    // minted for the present request
	mask     *mask
	proxy    *httputil.ReverseProxy
	refused  error // the last refusal
	asks     bool  // requests name their host to a proxy
}

func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := f.crossing.checkRequest(r)
	if err == nil {
		err = checkRules(f.fills.requests, r)
	}
	if err != nil {
		f.refuse(w, err)
		return
	}
	if f.fills.transform != nil {
		if f.fields, err = f.crossing.fields(r.Context(), f.fills.transform); err != nil {
			f.refuse(w, err)
			return
		}
	}
	if f.tokens, err = f.crossing.mint(r, f.fills.mints); err != nil {
		unavailable(w, err)
		return
	}
	w = pieceWriter{w, f.client}
	if len(f.fills.keys) > 0 {
		w = lowerWriter{w}
	}
	if !f.fills.any() {
		f.proxy.ServeHTTP(w, r)
		return
	}
	f.proxy.ServeHTTP(maskedWriter{w, f.mask}, r)
	f.mask.header(w.Header()) // the trailer, not yet written
}

// rewrite directs a request to the host, fills in secrets and sets the fields of a transform. The fields that the
// request's Connection field names are already gone, so a sandbox cannot have them removed.
func (f *forwarder) rewrite(r *httputil.ProxyRequest) {
	target := f.crossing.target
	r.Out.URL.Scheme, r.Out.URL.Host = f.scheme, net.JoinHostPort(target.Host, strconv.Itoa(target.Port))
	r.Out.Host = r.In.Host
	if f.asks { // the proxy connects to what the request line names: the target, not the client's spelling
		r.Out.Host = ""
		if target.Port == 80 {
			r.Out.URL.Host = target.Host
		}
	}
	if !mayUpgrade(r.Out.Header.Get("Upgrade"), f.fills.reads()) {
		r.Out.Header.Del("Upgrade")
		r.Out.Header.Del("Connection")
	}
	if f.fills.any() {
		f.crossing.fill(r.Out, f.fills.secrets, f.tokens)
		set(r.Out.Header, f.fields)
	}
}

// hide masks secrets in a response.
func (f *forwarder) hide(r *http.Response) error {
	if f.asks && r.StatusCode == http.StatusProxyAuthRequired {
		return errors.New("the proxy refuses the credentials of this server")
	}
	switch {
	case f.fills.any():
		if r.StatusCode == http.StatusUnauthorized {
			f.crossing.refusedTokens(f.fills.mints, f.tokens)
		}
		f.mask.response(r)
	case len(f.fills.keys) > 0 && r.StatusCode >= http.StatusBadRequest:
		f.crossing.gate.keyMask().response(r)
	}
	return nil
}

// fail answers a request that could not be forwarded.
func (f *forwarder) fail(w http.ResponseWriter, _ *http.Request, err error) {
	if r, ok := errors.AsType[refusal](err); ok {
		f.refuse(w, r)
		return
	}
	http.Error(w, "egress: cannot reach the host", http.StatusBadGateway) // the error's text might contain a secret
}

// refuse answers a refused request and ends the connection.
func (f *forwarder) refuse(w http.ResponseWriter, reason error) {
	f.refused = reason
	w.Header().Set("Connection", "close")
	http.Error(w, "egress: "+reason.Error(), http.StatusForbidden)
}

// checkRequest compares the host that a request names with the allowed one.
func (c *crossing) checkRequest(r *http.Request) error {
	if r.Method == http.MethodConnect {
		return refusal("a CONNECT request, as to a proxy")
	}
	host, port := r.Host, ""
	if h, p, err := net.SplitHostPort(r.Host); err == nil {
		host, port = h, p
	}
	if port != "" && port != strconv.Itoa(c.target.Port) || host == "" {
		return refusal("the request names another port, or no host")
	}
	return c.checkName("request", host)
}

// mayUpgrade reports whether a request may change the protocol. It refuses HTTP/2, whose
// requests could name other hosts. With secrets, it allows only WebSocket, whose frames can be
// masked.
func mayUpgrade(to string, secret bool) bool {
	if secret {
		return strings.EqualFold(to, "websocket")
	}
	return !strings.Contains(strings.ToLower(to), "h2c")
}

// A oneListener accepts one connection, then blocks until that is closed.
type oneListener struct {
	conn  chan net.Conn
	done  chan struct{}
	close func()
	alive sync.WaitGroup
}

func newOneListener(conn net.Conn) *oneListener {
	l := &oneListener{conn: make(chan net.Conn, 1), done: make(chan struct{})}
	l.close = sync.OnceFunc(func() { close(l.done) })
	l.alive.Add(1)
	l.conn <- &lastConn{Conn: conn, gone: sync.OnceFunc(func() { l.alive.Done(); l.close() })}
	return l
}

// A lastConn calls gone when it is closed, by the HTTP server or by a hijacker.
type lastConn struct {
	net.Conn
	gone func()
}

func (c *lastConn) Close() error {
	defer c.gone()
	return c.Conn.Close()
}

// CloseWrite lets http.Server half-close, so that a client can read a response before its
// remaining data is reset.
func (c *lastConn) CloseWrite() error { return closeWrite(c.Conn) }

func (l *oneListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conn:
		return conn, nil
	default:
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *oneListener) Close() error   { l.close(); return nil }
func (l *oneListener) Addr() net.Addr { return &net.TCPAddr{} }
func (l *oneListener) wait()          { l.alive.Wait() }

// fill replaces placeholders in a request by their values, and records the names of the
// secrets used. Tokens are for header fields only.
func (c *crossing) fill(r *http.Request, secrets, tokens []Secret) {
	room := maxHeaderFill
	in := filler{secrets, c.used, nil, &room}
	inQuery, inPath := in, in
	in.secrets = slices.Concat(secrets, tokens)
	inQuery.escape, inPath.escape = url.QueryEscape, url.PathEscape
	for _, values := range r.Header {
		for i, v := range values {
			values[i] = in.replace(basic(v, in))
		}
	}
	r.URL.RawQuery = inQuery.replace(r.URL.RawQuery)
	if path := inPath.replace(r.URL.EscapedPath()); path != r.URL.EscapedPath() {
		if u, err := url.Parse(path); err == nil {
			r.URL.Path, r.URL.RawPath = u.Path, u.RawPath
		}
	}
	r.Header.Set("Accept-Encoding", "identity") // the response must be readable to mask it
	r.Header.Del("Sec-WebSocket-Extensions")    // permessage-deflate would compress
	for _, name := range partial {
		r.Header.Del(name)
	}
	if len(secrets) > 0 && r.Body != nil && r.Body != http.NoBody {
		r.Body = c.gate.fillBody(r, secrets, c.used)
	}
}
