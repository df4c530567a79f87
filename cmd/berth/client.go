package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/guest"
)

// A client speaks to a server as any client of the API does.
type client struct {
	base string // without /v1
	key  string
	http *http.Client
}

// clientFlags adds --url to a command and returns the client that it names.
func clientFlags(cmd *cobra.Command) func() *client {
	base := cmd.Flags().String("url", envOr("BERTH_URL", "http://127.0.0.1:8080"), "server to talk to")
	return func() *client { return newClient(*base) }
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func newClient(base string) *client {
	base = strings.TrimSuffix(strings.TrimSuffix(base, "/"), "/v1")
	return &client{base: base, key: envOr("BERTH_API_KEY", os.Getenv("OPENAI_API_KEY")), http: &http.Client{}}
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
	c.authorize(req)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w (is berth serve running at %s?)", err, c.base)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, answerError(resp)
}

func (c *client) authorize(req *http.Request) {
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
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
		c.authorize(req)
		if user != "" {
			req.Header.Set("Berth-User", user)
		}
		return http.DefaultTransport.RoundTrip(req)
	})
	return guest.NewHTTPClient(c.base+"/v1/containers/"+url.PathEscape(container)+"/guest", &http.Client{Transport: transport})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
