package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/egress"
)

// maxStream bounds the stream of all messages of a session over HTTP with SSE, in bytes.
const maxStream = 4 * maxMessage

// targetOf returns the host and the port of a URL.
func targetOf(address string) (egress.Target, error) {
	u, err := url.Parse(address)
	if err != nil {
		return egress.Target{}, berth.Invalid("server_url", "Invalid 'server_url': expected an http or https URL.")
	}
	port, err := strconv.Atoi(portOf(u))
	if err != nil {
		return egress.Target{}, berth.Invalid("server_url", "Invalid 'server_url': the port is not a number.")
	}
	return egress.Target{Host: u.Hostname(), Port: port}, nil
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "http":
		return "80"
	}
	return "443"
}

// originOf returns the scheme, host and port of a URL in one spelling.
func originOf(u *url.URL) string {
	return strings.ToLower(u.Scheme) + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), portOf(u))
}

// connectRemote connects to the URL over streamable HTTP and, if the server does not know
// that, over HTTP with SSE, its predecessor. The end of life ends the session.
func (s *source) connectRemote(life context.Context, in *intake, notified chan struct{}) (*sdk.ClientSession, error) {
	u, err := url.Parse(s.tool.ServerURL)
	if err != nil {
		return nil, fmt.Errorf("parse server_url: %w", err)
	}
	client := s.opts.Gate.Client(0)
	client.Transport = &guardedTransport{life: life, next: client.Transport, origin: originOf(u), headers: s.headers(),
		fault: in.fault, intake: in, notified: notified}
	session, err := initialize(life, &sdk.StreamableClientTransport{Endpoint: s.tool.ServerURL, HTTPClient: client,
		DisableStandaloneSSE: true, MaxRetries: -1, MaxEventSize: -1}) // guarded bounds each answer
	if err == nil {
		return session, nil
	}
	switch status, _, _ := in.fault.get(); status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotAcceptable:
	default:
		return nil, err
	}
	old, failed := initialize(life, &sdk.SSEClientTransport{Endpoint: s.tool.ServerURL, HTTPClient: client,
		MaxEventSize: maxMessage})
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	return old, nil
}

// headers returns the request's headers, with its authorization.
func (s *source) headers() http.Header {
	h := http.Header{}
	for name, value := range s.tool.Headers {
		h.Set(name, value)
	}
	if s.tool.Authorization != "" {
		h.Set("Authorization", "Bearer "+s.tool.Authorization)
	}
	return h
}

// minSecret is the length of the shortest credential that is removed from a server's texts.
// A shorter one is part of many words.
const minSecret = 6

// redactor replaces the request's credentials: the values of its headers, its authorization
// and the query of the server's address.
func (s *source) redactor() *strings.Replacer {
	values := []string{s.tool.Authorization}
	for _, v := range s.tool.Headers {
		values = append(values, v)
		_, token, _ := strings.Cut(v, " ") // after Bearer or Basic
		values = append(values, token)
	}
	if u, err := url.Parse(s.tool.ServerURL); err == nil {
		values = append(values, u.RawQuery)
		for _, all := range u.Query() {
			values = append(values, all...)
		}
	}
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) }) // a value may be part of a longer one
	var pairs []string
	for _, v := range values {
		if len(v) >= minSecret {
			pairs = append(pairs, v, "[redacted]")
		}
	}
	return strings.NewReplacer(pairs...)
}

// A guardedTransport transport sends requests to one origin only, so that redirects and the
// endpoints that a server names can neither reach other hosts nor carry the credentials to
// them. It bounds answers.
type guardedTransport struct {
	life    context.Context // of the session, with which its requests end
	next    http.RoundTripper
	origin  string
	headers http.Header
	fault   *connectionError
	intake  *intake

	notified chan struct{} // receives when a notification of a cancelled call was sent
}

func (g *guardedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	// a redirect must not bring credentials
	if originOf(req.URL) != g.origin || req.Response != nil && req.URL.User != nil {
		g.fault.set(func(f *connectionError) { f.err = errOrigin })
		return nil, errOrigin
	}
	if err := g.intake.send(); err != nil {
		g.intake.taken()
		return nil, err
	}
	defer g.intake.taken()
	ctx, cancel := context.WithCancel(req.Context()) // the SDK's context of an answer never ends
	stop := context.AfterFunc(g.life, cancel)
	end := func() {
		stop()
		cancel()
	}
	req = req.Clone(ctx)
	for name, values := range g.headers {
		req.Header[name] = values
	}
	req.Header.Set("User-Agent", "Berth")
	if cancels(req) {
		defer func() {
			select {
			case g.notified <- struct{}{}:
			default:
			}
		}()
	}
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		end()
		g.fault.set(func(f *connectionError) {
			if !errors.Is(f.err, errAsks) { // which ends the other requests
				f.err = err
			}
		})
		return nil, fmt.Errorf("send request: %w", err)
	}
	if resp.StatusCode >= 400 && req.Method != http.MethodDelete {
		g.fault.set(func(f *connectionError) { f.status = resp.StatusCode })
	}
	most := int64(maxMessage)
	if req.Method == http.MethodGet {
		most = maxStream
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, left: most, ctx: ctx, intake: g.intake, end: end}
	siftBody(ctx, resp, g.intake)
	return resp, nil
}

// cancels reports whether a request notifies the server of a cancelled call.
func cancels(req *http.Request) bool {
	const most = 4 << 10
	if req.GetBody == nil || req.ContentLength > most {
		return false
	}
	body, err := req.GetBody()
	if err != nil {
		return false
	}
	defer body.Close()
	text, _ := io.ReadAll(io.LimitReader(body, most))
	return bytes.Contains(text, []byte(`"notifications/cancelled"`))
}

// A boundedBody body fails after a number of bytes.
type boundedBody struct {
	io.ReadCloser
	left   int64
	ctx    context.Context
	intake *intake
	end    func() // of the request
}

func (b *boundedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, b.intake.fail(errTooLarge)
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if failed := b.intake.receive(b.ctx, n); failed != nil {
		return 0, failed
	}
	return n, err
}
