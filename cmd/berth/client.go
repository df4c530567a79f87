package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil || resp.StatusCode < http.StatusBadRequest {
			return resp, err
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		resp.Body.Close()
		if refused := serverError(text); refused != nil {
			return nil, refused
		}
		resp.Body = io.NopCloser(bytes.NewReader(text)) // the guest's own
		return resp, err
	})
	return guest.NewHTTPClient(c.base+"/v1/containers/"+url.PathEscape(container)+"/guest", &http.Client{Transport: transport})
}

// maxErrorBody bounds what is read of an answer that is an error, in bytes.
const maxErrorBody = 64 << 10

// serverError returns the error that a body of the API tells of, nil if it is none.
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

// refusal takes from an error of a guest's client what carried the server's words.
func refusal(err error) error {
	if said, ok := errors.AsType[apiError](err); ok {
		return said
	}
	return err
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
