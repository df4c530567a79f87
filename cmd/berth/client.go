package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/guest"
)

// A client calls the API of a server. Its key is BERTH_API_KEY. Keys of model vendors are for
// the server's upstreams and are never sent.
type client struct {
	base  string // without /v1
	key   string
	plain bool // the key may be sent over plain HTTP
	http  *http.Client
}

// clientFlags adds --url and --plain-http to a command and returns the client that they
// name.
func clientFlags(cmd *cobra.Command) func() *client {
	base := cmd.Flags().String("url", envOr("BERTH_URL", defaultURL), "server to talk to")
	plain := plainFlag(cmd)
	return func() *client { return newClient(*base, *plain) }
}

// defaultURL is where berth serve listens by default.
const defaultURL = "http://127.0.0.1:8080"

// plainFlag adds --plain-http to a command.
func plainFlag(cmd *cobra.Command) *bool {
	allowed, _ := strconv.ParseBool(os.Getenv("BERTH_PLAIN_HTTP"))
	return cmd.Flags().Bool("plain-http", allowed, "send the key without encryption to a server on another machine")
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func newClient(base string, plain bool) *client {
	base = strings.TrimSuffix(strings.TrimSuffix(base, "/"), "/v1")
	return &client{base: base, key: os.Getenv("BERTH_API_KEY"), plain: plain, http: &http.Client{CheckRedirect: sameOrigin}}
}

// sameOrigin refuses redirects to another origin: net/http sends the key along to
// subdomains, to other ports and without encryption.
func sameOrigin(req *http.Request, via []*http.Request) error {
	if from := via[0].URL; req.URL.Scheme != from.Scheme || req.URL.Host != from.Host {
		return fmt.Errorf("the server redirects to %s://%s; if that is the server, name it with --url", req.URL.Scheme, req.URL.Host)
	}
	if len(via) >= 10 {
		return errors.New("the server redirects too often")
	}
	return nil
}

// serves reports whether a server answers at the client's URL. The probe carries no key:
// another program may listen there.
func (c *client) serves(ctx context.Context) bool {
	probe := *c
	probe.key = ""
	return probe.call(ctx, http.MethodGet, "/healthz", nil, nil) == nil
}

// do sends a request and returns the answer, whose body the caller closes. An
// answer that is an error is returned as one, in the server's words.
func (c *client) do(ctx context.Context, method, path, kind string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if err := c.authorize(req); err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w (is berth serve running at %s?)", err, c.base)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, c.answerError(resp)
}

// authorize adds the key to a request. It returns an error if the connection is not encrypted
// and leaves this machine.
func (c *client) authorize(req *http.Request) error {
	if c.key == "" {
		return nil
	}
	if req.URL.Scheme != "https" && !c.plain && !loopback(req.URL.Hostname()) {
		return fmt.Errorf("BERTH_API_KEY is not sent to %s without encryption; use https, or --plain-http (BERTH_PLAIN_HTTP=1) if you trust the network between", req.URL.Host)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	return nil
}

// loopback reports whether a host is this machine.
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
	err := serverError(text)
	if err == nil {
		err = fmt.Errorf("the server answered %s", resp.Status)
	}
	return c.withoutKey(resp.StatusCode, err)
}

// withoutKey adds a hint to the error of a request if only a vendor's key is set.
func (c *client) withoutKey(status int, err error) error {
	if status != http.StatusUnauthorized || c.key != "" {
		return err
	}
	const needed = "This server asks for a key: set BERTH_API_KEY (berth key create makes one)."
	if os.Getenv("OPENAI_API_KEY") == "" {
		return apiError(needed)
	}
	return apiError(fmt.Sprintf("%s (OPENAI_API_KEY is for the upstream and is not sent to %s.)", needed, c.base))
}

// send sends a body and decodes the answer into out.
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

// call sends in as JSON, if it is not nil, and decodes the answer into out.
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
		if refused := serverError(text); refused != nil {
			return nil, c.withoutKey(resp.StatusCode, refused)
		}
		resp.Body = io.NopCloser(bytes.NewReader(text)) // the guest's own
		return resp, err
	})
	return guest.NewHTTPClient(c.base+"/v1/containers/"+url.PathEscape(container)+"/guest", &http.Client{Transport: transport, CheckRedirect: sameOrigin})
}

// maxErrorBody is the most bytes that are read of an error response.
const maxErrorBody = 64 << 10

// serverError returns the error in a body of the API, or nil if it has none.
func serverError(text []byte) error {
	var e struct {
		Error struct{ Message string }
	}
	if json.Unmarshal(text, &e) != nil || e.Error.Message == "" {
		return nil
	}
	return apiError(e.Error.Message)
}

// An apiError is an error in the server's words.
type apiError string

func (e apiError) Error() string { return string(e) }

// refusal returns the server's error inside an error of a guest's client.
func refusal(err error) error {
	if said, ok := errors.AsType[apiError](err); ok {
		return said
	}
	return err
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
