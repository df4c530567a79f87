// Package openai asks models that speak Responses, OpenAI's own API, as Berth
// itself does: what it does not know passes through both ways.
package openai

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/upstream"
)

// BaseURL is where OpenAI's own server is.
const BaseURL = "https://api.openai.com/v1"

// Options describe an upstream. Those below the first say where servers differ;
// their zero values suit OpenAI's.
type Options struct {
	upstream.Options // the default of BaseURL is OpenAI's

	// Reasoning is which reasoning goes back to the model: "encrypted", the default,
	// is what it needs and OpenAI takes; "all" is also that whose words alone are
	// known, for servers of open models.
	Reasoning string
}

// A Provider is one upstream. It is safe for concurrent use.
type Provider struct {
	client openai.Client
	opts   Options
	up     *upstream.Upstream
}

var (
	_ model.Provider = (*Provider)(nil)
	_ model.Lister   = (*Provider)(nil)
)

// New returns a provider. Nothing is connected yet.
func New(opts Options) (*Provider, error) {
	if opts.BaseURL == "" {
		opts.BaseURL = BaseURL
	}
	up, err := upstream.New(opts.Options)
	if err != nil {
		return nil, err
	}
	if r := opts.Reasoning; r != "" && r != "encrypted" && r != "all" {
		return nil, fmt.Errorf("%q must be \"encrypted\" or \"all\"", r)
	}
	options := []option.RequestOption{option.WithBaseURL(up.BaseURL), option.WithAPIKey(up.APIKey),
		option.WithHTTPClient(up.HTTPClient), option.WithMaxRetries(0)}
	for k, v := range up.Headers {
		options = append(options, option.WithHeader(k, v))
	}
	// Not openai.NewClient: it takes keys and headers from the environment, which
	// belong to another upstream.
	return &Provider{client: openai.Client{Options: options}, opts: opts, up: up}, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	body, err := p.request(req)
	if err != nil {
		return func(yield func(model.Delta, error) bool) { yield(nil, err) }
	}
	return p.up.Ask(ctx, upstream.Question{
		Model: req.Model,
		Send: func(ctx context.Context) (res *http.Response, err error) {
			err = p.client.Post(ctx, "responses", body, &res)
			return res, err
		},
		Read: func(w *upstream.Watch) iter.Seq2[model.Delta, error] {
			return newAnswer(req, p.up.Log).read(w)
		},
		Explain: explain,
	})
}

// Models implements model.Lister.
func (p *Provider) Models(ctx context.Context) ([]berth.Model, error) {
	body, err := p.up.Get(ctx, func(ctx context.Context) (res *http.Response, err error) {
		err = p.client.Get(ctx, "models", nil, &res)
		return res, err
	}, explain)
	if err != nil {
		return nil, err
	}
	return p.up.Models(body)
}

// explain reads an error. A place in the input that was sent is none in what the
// client sent.
func explain(r *upstream.Refusal) upstream.Complaint {
	c := upstream.Explain(r)
	for _, field := range []string{"input", "tools"} {
		if strings.HasPrefix(c.Param, field+"[") {
			c.Param = field
		}
	}
	return c
}
