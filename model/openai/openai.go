// Package openai is the provider for servers that speak OpenAI's Responses API. Fields
// and items unknown to Berth pass through in both directions.
package openai

import (
	"context"
	"iter"
	"strings"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/upstream"
)

// BaseURL is the address of OpenAI's own server.
const BaseURL = "https://api.openai.com/v1"

// Options configure an upstream. The zero values of the fields below the first suit
// OpenAI.
type Options struct {
	upstream.Options // the default of BaseURL is OpenAI's

	// Reasoning selects the reasoning items that are sent back to the model:
	// "encrypted", the default, only those with encrypted content, which OpenAI takes;
	// "all" also those with plain text only, for servers of open models.
	Reasoning string

	// CustomTools selects how custom tools are sent: "native", with their grammars, or
	// "function". The default is native for OpenAI's own server, and function for others,
	// which may have none.
	CustomTools string

	// NativeTools are the types of hosted tools that the upstream gets as they are, and runs
	// itself: image_generation, computer and computer_use_preview. If nil, they are those of
	// OpenAI's models for OpenAI's own server, and none for others.
	NativeTools []string
}

// The values of Options.CustomTools.
const (
	customNative   = "native"
	customFunction = "function"
)

// A Provider is one upstream. It is safe for concurrent use.
type Provider struct {
	client *upstream.Client
	opts   Options
	up     *upstream.Upstream
	own    bool // OpenAI's own server
}

var (
	_ model.ToolOwner = (*Provider)(nil)
	_ model.Provider  = (*Provider)(nil)
	_ model.Lister    = (*Provider)(nil)
	_ model.Forwarder = (*Provider)(nil)
)

// New returns a provider. It does not connect.
func New(opts Options) (*Provider, error) {
	if opts.BaseURL == "" {
		opts.BaseURL = BaseURL
	}
	if opts.CustomTools == "" {
		opts.CustomTools = customFunction
		if opts.BaseURL == BaseURL {
			opts.CustomTools = customNative
		}
	}
	up, err := upstream.New(opts.Options)
	if err != nil {
		return nil, err
	}
	if err := upstream.Check("reasoning", opts.Reasoning, "encrypted", "all"); err != nil {
		return nil, err
	}
	if err := upstream.Check("custom_tools", opts.CustomTools, customNative, customFunction); err != nil {
		return nil, err
	}
	for _, t := range opts.NativeTools {
		if err := upstream.Check("native_tools", t, NativeTools...); err != nil {
			return nil, err
		}
	}
	return &Provider{client: up.OpenAI(), opts: opts, up: up, own: opts.BaseURL == BaseURL}, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	body, err := p.request(req)
	if err != nil {
		return upstream.Fail(err)
	}
	return p.up.Stream(ctx, upstream.Turn{
		Model:   req.Model,
		Send:    p.client.Post("responses", body, nil),
		Answer:  func() upstream.Answer { return newAnswer(req, len(p.custom(req.Tools)) > 0, p.up.Log) },
		Explain: explain,
	})
}

// Forward implements model.Forwarder.
func (p *Provider) Forward(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	return p.up.Forward(ctx, p.client, req)
}

// Models implements model.Lister.
func (p *Provider) Models(ctx context.Context) ([]berth.Model, error) {
	return p.up.Models(ctx, p.client.Get("models"), explain)
}

// explain decodes an error. It cuts indexes from Param, because the input sent to the
// upstream differs from the client's.
func explain(r *upstream.Refusal) upstream.Complaint {
	c := upstream.Explain(r)
	for _, field := range []string{"input", "tools"} {
		if strings.HasPrefix(c.Param, field+"[") {
			c.Param = field
		}
	}
	return c
}
