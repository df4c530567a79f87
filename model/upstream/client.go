package upstream

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// A Send sends a request. It returns when the header of the response has arrived.
type Send func(ctx context.Context) (*http.Response, error)

// A Client is the client of a vendor's SDK, which takes options of type O.
type Client[O any] interface {
	Get(ctx context.Context, path string, params, res any, opts ...O) error
	Post(ctx context.Context, path string, params, res any, opts ...O) error
}

// Get returns a Send for a GET request.
func Get[O any](c Client[O], path string) Send {
	return func(ctx context.Context) (res *http.Response, err error) {
		err = c.Get(ctx, path, nil, &res)
		return res, err
	}
}

// Post returns a Send for a POST request with a JSON body.
func Post[O any](c Client[O], path string, body any, opts ...O) Send {
	return func(ctx context.Context) (res *http.Response, err error) {
		err = c.Post(ctx, path, body, &res, opts...)
		return res, err
	}
}

// OpenAI returns a client for servers that speak one of OpenAI's APIs.
func (u *Upstream) OpenAI() *openai.Client {
	options := []option.RequestOption{option.WithBaseURL(u.BaseURL), option.WithAPIKey(u.APIKey),
		option.WithHTTPClient(u.HTTPClient), option.WithMaxRetries(0)}
	for k, v := range u.Headers {
		options = append(options, option.WithHeader(k, v))
	}
	// Not openai.NewClient: it takes keys and headers from the environment, which
	// belong to another upstream.
	return &openai.Client{Options: options}
}

// Check returns an error unless the value of an option is empty or one of allowed.
func Check(name, value string, allowed ...string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s: %q must be one of %q", name, value, allowed)
}
