package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A Send sends a request. It returns when the header of the response has arrived.
type Send func(ctx context.Context) (*http.Response, error)

// A Client sends requests of one vendor's form to an upstream. Vendors' SDKs are not used
// for that: they would bring 40 MB into the program, read keys from the environment that
// belong to another upstream, and read answers of any size.
type Client struct {
	up     *Upstream
	header http.Header
}

// Client returns a client whose requests have header, and the operator's own headers, which
// win.
func (u *Upstream) Client(header http.Header) *Client {
	c := &Client{up: u, header: http.Header{"Accept": {"application/json"}, "User-Agent": {"berth"}}}
	for name, values := range header {
		c.header[name] = values
	}
	for name, value := range u.Headers {
		c.header.Set(name, value)
	}
	return c
}

// OpenAI returns a client for servers that speak one of OpenAI's APIs.
func (u *Upstream) OpenAI() *Client {
	header := http.Header{}
	if u.APIKey != "" {
		header.Set("Authorization", "Bearer "+u.APIKey)
	}
	return u.Client(header)
}

// Get returns a Send for a GET request to a path below the base URL. The path may have a
// query.
func (c *Client) Get(path string) Send {
	return func(ctx context.Context) (*http.Response, error) { return c.send(ctx, http.MethodGet, path, nil, nil) }
}

// An Appender writes its own JSON, which is appended to b.
type Appender interface {
	AppendJSON(b []byte) ([]byte, error)
}

// AppendJSON appends the JSON of v to b. It leaves <, > and & as they are: tokens of source
// code would grow.
func AppendJSON(b []byte, v any) ([]byte, error) {
	if a, ok := v.(Appender); ok {
		return a.AppendJSON(b)
	}
	raw := bytes.NewBuffer(b)
	e := json.NewEncoder(raw)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(raw.Bytes(), []byte("\n")), err
}

// Post returns a Send for a POST request with a JSON body; see AppendJSON. The header is
// added to the client's and may be nil.
func (c *Client) Post(path string, body any, header http.Header) Send {
	return func(ctx context.Context) (*http.Response, error) {
		raw, err := AppendJSON(nil, body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		return c.send(ctx, http.MethodPost, path, raw, header)
	}
}

func (c *Client) send(ctx context.Context, method, path string, body []byte, header http.Header) (*http.Response,
	error) {
	path, query, _ := strings.Cut(path, "?")
	at := c.up.Base.JoinPath(path)
	if query != "" {
		at.RawQuery = strings.TrimPrefix(at.RawQuery+"&"+query, "&")
	}
	req, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range c.header {
		req.Header[name] = values
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if host := req.Header.Get("Host"); host != "" { // net/http ignores the header
		req.Host = host
	}
	return c.up.HTTPClient.Do(req)
}

// Check returns an error unless the value of an option is empty or one of allowed.
func Check(name, value string, allowed ...string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s: %q must be one of %q", name, value, allowed)
}
