package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/jsonscan"
)

// A client calls the API of a server. Its key is BERTH_API_KEY. Keys of model vendors are for
// the server's upstreams and are never sent.
type client struct {
	base  string // without /v1
	key   string
	plain bool // the key may be sent over plain HTTP
	http  *http.Client

	expires  int64         // when the key's session ends, in Unix seconds; 0 if that is not known
	patience time.Duration // how long to wait for a server that is not ready, such as one that makes its template
}

// clientFlags adds --url and --plain-http to a command, and returns a function that creates the
// client they select.
func clientFlags(cmd *cobra.Command) func() *client {
	base, plain := urlFlag(cmd), plainFlag(cmd)
	return func() *client { return newClient(*base, *plain) }
}

// urlFlag adds --url to a command. Its usage has the whole default, so that the help must not print the value again.
func urlFlag(cmd *cobra.Command) *string {
	base := cmd.Flags().String("url", os.Getenv("BERTH_URL"),
		"URL of the server (default: BERTH_URL, the current context, or "+defaultURL+")")
	cmd.Flags().Lookup("url").DefValue = ""
	return base
}

// defaultURL is the default address of berth serve.
const defaultURL = "http://127.0.0.1:8080"

// plainFlag adds --plain-http to a command.
func plainFlag(cmd *cobra.Command) *bool {
	allowed, _ := strconv.ParseBool(os.Getenv("BERTH_PLAIN_HTTP"))
	return cmd.Flags().Bool("plain-http", allowed, "allow sending the key unencrypted to another machine")
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// newClient returns a client of the server at base, or of the current context if base is "". The
// key is BERTH_API_KEY, or the key that berth login stored for exactly this server.
func newClient(base string, plain bool) *client {
	c := &client{key: os.Getenv("BERTH_API_KEY"), plain: plain, http: &http.Client{CheckRedirect: sameOrigin}}
	saved, err := readContexts()
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth:", err)
	}
	current := saved.current()
	if base == "" && current != nil {
		base = current.URL
	}
	c.base = baseURL(cmp.Or(base, defaultURL))
	if c.key != "" {
		return c
	}
	for _, one := range saved.Contexts {
		if one.URL == c.base {
			c.key, c.expires, c.plain = one.Key, one.ExpiresAt, c.plain || one.PlainHTTP
		}
	}
	return c
}

// baseURL returns the URL of a server without /v1. An address without a scheme means http.
func baseURL(s string) string {
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(s, "/"), "/v1"), "/")
}

// sameOrigin refuses redirects to another origin, because net/http would send the key to
// subdomains, to other ports and without encryption.
func sameOrigin(req *http.Request, via []*http.Request) error {
	if from := via[0].URL; req.URL.Scheme != from.Scheme || req.URL.Host != from.Host || req.URL.User != nil {
		return fmt.Errorf("the server redirects to %s://%s; if that is the right server, set --url to it",
			req.URL.Scheme, req.URL.Host)
	}
	if len(via) >= 10 {
		return errors.New("too many redirects")
	}
	return nil
}

// serves reports whether a server responds at the client's URL. The probe carries no key:
// another program may listen there.
func (c *client) serves(ctx context.Context) bool {
	probe := *c
	probe.key = ""
	return probe.call(ctx, http.MethodGet, "/healthz", nil, nil) == nil
}

// do sends a request and returns the response. The caller closes its body. It returns an error
// response as an error, in the server's words.
func (c *client) do(ctx context.Context, method, path, kind string, body io.Reader) (*http.Response, error) {
	if err := checkURL(c.base); err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if strings.HasPrefix(path, "/v1/assistants") || strings.HasPrefix(path, "/v1/threads") {
		req.Header.Set("OpenAI-Beta", "assistants=v2") // the API requires it
	}
	if err := c.authorize(req); err != nil {
		return nil, err
	}
	resp, err := c.patiently(req)
	if rest, ok := strings.CutPrefix(c.base, "https://"); ok && errors.Is(err, http.ErrSchemeMismatch) {
		return nil, fmt.Errorf("the server at %s speaks HTTP without TLS; use http://%s, or its HTTPS port", c.base,
			rest)
	}
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, c.answerError(resp)
}

// maxPause is the longest pause before a request is sent again: a server asks for more than most templates take.
const maxPause = 2 * time.Second

// patiently sends a request, and sends it again while the server is not ready for it, up to the client's patience.
func (c *client) patiently(req *http.Request) (*http.Response, error) {
	var waited time.Duration
	for told := false; ; told = true {
		resp, err := c.http.Do(req)
		if err != nil {
			return nil, err
		}
		wait, ok := retryAfter(resp)
		if !ok || c.patience == 0 || waited+wait > c.patience || req.Body != nil && req.GetBody == nil {
			return resp, nil
		}
		if !told {
			fmt.Fprintln(os.Stderr, "berth: the command waits:", c.answerError(resp))
		}
		resp.Body.Close()
		waited += wait
		if err := pause(req.Context(), wait); err != nil {
			return nil, err
		}
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// retryAfter returns when to send a request again to a server that is not ready for it yet.
func retryAfter(resp *http.Response) (time.Duration, bool) {
	seconds, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16)
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	return min(time.Duration(seconds)*time.Second, maxPause), true
}

// pause waits, or returns the error of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkURL returns a usage error unless a text is the URL of a server.
func checkURL(base string) error {
	const expected = "expected the URL of a server, such as " + defaultURL + " (--url, BERTH_URL or berth login)"
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Hostname() == "":
		return badUsage("%q is not a URL; %s", base, expected)
	case u.Scheme != "http" && u.Scheme != "https":
		return badUsage("%q is neither http nor https; %s", base, expected)
	case u.Port() != "":
		if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
			return badUsage("%q has a port out of range; %s", base, expected)
		}
	}
	return nil
}

// unreachable returns the error for a request without an answer.
func (c *client) unreachable(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the message names the server, the request is no news
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return fmt.Errorf("there is no host %s; check --url or BERTH_URL (%s)", dns.Name, c.base)
	}
	return fmt.Errorf("%w (is berth serve running at %s?)", err, c.base)
}

// authorize adds the key to a request. It returns an error if the key would leave this machine
// unencrypted.
func (c *client) authorize(req *http.Request) error {
	if c.key == "" {
		return nil
	}
	if req.URL.Scheme != "https" && !c.plain && !loopback(req.URL.Hostname()) {
		return fmt.Errorf(
			"refusing to send BERTH_API_KEY to %s unencrypted; use https, or --plain-http (BERTH_PLAIN_HTTP=1) if you trust the network",
			req.URL.Host)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	return nil
}

// loopback reports whether a host is on the loopback interface.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// answerError returns the error of a response, in the server's words.
func (c *client) answerError(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if rest, ok := strings.CutPrefix(c.base, "http://"); ok && resp.StatusCode == http.StatusBadRequest &&
		bytes.Contains(text, []byte("an HTTP request to an HTTPS server")) {
		return fmt.Errorf("the server at %s speaks HTTPS; use https://%s", c.base, rest)
	}
	err := serverError(resp.StatusCode, text)
	if err == nil {
		err = fmt.Errorf("the server returned %s", resp.Status)
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		err = withRequest(err, resp.Header)
	}
	return c.withoutKey(resp.StatusCode, err)
}

// withRequest adds the id of a request to its error. The server's log has it, with the reason.
func withRequest(err error, answer http.Header) error {
	id := answer.Get("x-request-id")
	if id == "" {
		return err
	}
	return fmt.Errorf("%w (request %s)", err, inLine(id))
}

// withoutKey adds a hint to the error of a request if only a vendor's key is set.
func (c *client) withoutKey(status int, err error) error {
	if status == http.StatusUnauthorized && c.expires != 0 {
		return &apiError{fmt.Sprintf("Your session has ended. Sign in again: berth login %s --browser (or --device).", c.base),
			status}
	}
	if status != http.StatusUnauthorized || c.key != "" {
		return err
	}
	const needed = "This server requires a key: set BERTH_API_KEY (berth key create creates one)."
	if os.Getenv("OPENAI_API_KEY") == "" {
		return &apiError{needed, status}
	}
	return &apiError{fmt.Sprintf("%s (OPENAI_API_KEY is for the upstream and is not sent to %s.)", needed, c.base),
		status}
}

// send sends a body and decodes the response into out, if that is not nil.
func (c *client) send(ctx context.Context, method, path, kind string, body io.Reader, out any) error {
	resp, err := c.do(ctx, method, path, kind, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// printObject prints the answer of a GET as indented JSON.
func (c *client) printObject(cmd *cobra.Command, path string) error {
	return c.printAnswer(cmd, http.MethodGet, path, nil)
}

// printLines prints the objects of a list endpoint, each as a line of JSON.
func (c *client) printLines(cmd *cobra.Command, path string) error {
	all, err := list[json.RawMessage](cmd.Context(), c, path)
	if err != nil {
		return err
	}
	for _, raw := range all {
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", raw); err != nil {
			return err
		}
	}
	return nil
}

// printAnswer prints the answer of a request as indented JSON.
func (c *client) printAnswer(cmd *cobra.Command, method, path string, in any) error {
	var raw json.RawMessage
	if err := c.call(cmd.Context(), method, path, in, &raw); err != nil {
		return err
	}
	_, err := cmd.OutOrStdout().Write(append(jsonscan.Indent(raw), '\n'))
	return err
}

// call sends in as JSON, if it is not nil, and decodes the response into out.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	kind := ""
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body, kind = bytes.NewReader(raw), "application/json"
	}
	return c.send(ctx, method, path, kind, body, out)
}

// guest returns a client of a container's guest, through the server.
func (c *client) guest(container, user string) *guest.Client {
	transport := roundTrip(func(req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		if err := c.authorize(req); err != nil {
			return nil, err
		}
		if user != "" {
			req.Header.Set("Berth-User", user)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil || resp.StatusCode < http.StatusBadRequest {
			return resp, err
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		resp.Body.Close()
		if refused := serverError(resp.StatusCode, text); refused != nil {
			return nil, c.withoutKey(resp.StatusCode, refused)
		}
		resp.Body = io.NopCloser(bytes.NewReader(text)) // an error of the guest
		return resp, err
	})
	return guest.NewHTTPClient(c.base+"/v1/containers/"+url.PathEscape(container)+"/guest",
		&http.Client{Transport: transport, CheckRedirect: sameOrigin})
}

// maxErrorBody bounds the part of an error response that is read.
const maxErrorBody = 64 << 10

// serverError returns the error in a body of the API, or nil if there is none.
func serverError(status int, text []byte) error {
	var e struct {
		Error struct{ Message string }
	}
	if json.Unmarshal(text, &e) != nil || e.Error.Message == "" {
		return nil
	}
	return &apiError{e.Error.Message, status}
}

// An apiError is an error in the server's words.
type apiError struct {
	message string
	status  int // of HTTP
}

func (e *apiError) Error() string { return e.message }

// isNotFound reports whether an object that a command selected does not exist.
func isNotFound(err error) bool {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e.status == http.StatusNotFound
	}
	return errors.Is(err, errNotFound)
}

// refusal returns the server's error inside an error of a guest's client.
func refusal(err error) error {
	if e, ok := errors.AsType[*apiError](err); ok {
		return e
	}
	return err
}

// fileError returns the error about a file of a container in a sentence with its path.
func fileError(path string, err error) error {
	path = inLine(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: the container has no such file or directory", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: the container's user may not use this file; choose another one with --user", path)
	}
	return refusal(err)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
