// Package chat asks models that speak Chat Completions: vLLM, Ollama, llama.cpp,
// LM Studio, OpenRouter, OpenAI itself.
package chat

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/upstream"
)

// Options describe an upstream. Those of its dialect say where upstreams differ;
// their zero values suit most.
type Options struct {
	upstream.Options

	// SystemRole is the role of instructions and of developer messages: "system",
	// the default and the only one that most upstreams know, or "developer".
	SystemRole string

	// MaxTokens is the name under which the bound on output goes out: "max_tokens"
	// or "max_completion_tokens". Ollama and LM Studio heed only the former, vLLM
	// and llama.cpp take both, OpenAI's reasoning models take only the latter. The
	// default is max_completion_tokens for api.openai.com and max_tokens elsewhere.
	MaxTokens string

	// Reasoning is the field of assistant messages in which the upstream wants the
	// model's reasoning back: "reasoning_content" (DeepSeek, Moonshot), "reasoning"
	// (OpenRouter, newer vLLM), or empty to leave it out, the default.
	Reasoning string

	// CallIDLength bounds the ids of calls; longer ones are replaced by a digest
	// of that length. The default is 40, OpenAI's bound. Mistral wants 9.
	CallIDLength int
}

// A Provider is one upstream. It is safe for concurrent use.
type Provider struct {
	client openai.Client
	opts   Options
	up     *upstream.Upstream

	withoutHints atomic.Bool // the upstream has refused a hint
}

var (
	_ model.Provider = (*Provider)(nil)
	_ model.Lister   = (*Provider)(nil)
)

// New returns a provider. Nothing is connected yet.
func New(opts Options) (*Provider, error) {
	up, err := upstream.New(opts.Options)
	if err != nil {
		return nil, err
	}
	if err := opts.complete(up.Base.Hostname()); err != nil {
		return nil, err
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

// complete checks the dialect and fills in the defaults for a host.
func (o *Options) complete(host string) error {
	name := "max_tokens"
	if host == "api.openai.com" {
		name = "max_completion_tokens"
	}
	o.MaxTokens = cmp.Or(o.MaxTokens, name)
	o.SystemRole = cmp.Or(o.SystemRole, "system")
	o.CallIDLength = cmp.Or(o.CallIDLength, 40)
	for _, choice := range []struct{ value, a, b string }{
		{o.MaxTokens, "max_tokens", "max_completion_tokens"},
		{o.SystemRole, "system", "developer"},
		{cmp.Or(o.Reasoning, "reasoning"), "reasoning", "reasoning_content"},
	} {
		if choice.value != choice.a && choice.value != choice.b {
			return fmt.Errorf("%q must be %q or %q", choice.value, choice.a, choice.b)
		}
	}
	return nil
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
			if err = p.client.Post(ctx, "chat/completions", body, &res); !refusesHints(body, err) {
				return res, err
			}
			p.withoutHints.Store(true)
			p.up.Log.Info("the upstream refuses prompt_cache_key and safety_identifier, which are not sent any more", "err", err)
			body.hints = hints{}
			err = p.client.Post(ctx, "chat/completions", body, &res)
			return res, err
		},
		Read: func(w *upstream.Watch) iter.Seq2[model.Delta, error] {
			return newAnswer(req, p.up.Log).read(w)
		},
		Explain: explain,
	})
}

// refusesHints reports whether an upstream refused a request because of a hint in it.
// Hints change nothing in the answer, so the request is sent again without them.
func refusesHints(body *request, err error) bool {
	r, ok := errors.AsType[*upstream.Refusal](err)
	if !ok || r.Status != http.StatusBadRequest && r.Status != http.StatusUnprocessableEntity {
		return false
	}
	for name, value := range map[string]string{"prompt_cache_key": body.PromptCacheKey,
		"prompt_cache_retention": body.PromptCacheRetention, "safety_identifier": body.SafetyIdentifier} {
		if value != "" && bytes.Contains(r.Body, []byte(name)) {
			return true
		}
	}
	return false
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

// explain reads an error; its param gets the name that Responses has for it.
func explain(r *upstream.Refusal) upstream.Complaint {
	c := upstream.Explain(r)
	switch first, _, _ := strings.Cut(c.Param, "["); {
	case first == "messages":
		c.Param = "input"
	case first == "max_tokens", first == "max_completion_tokens":
		c.Param = "max_output_tokens"
	case strings.HasPrefix(first, "response_format"):
		c.Param = "text.format"
	case first == "reasoning_effort":
		c.Param = "reasoning.effort"
	}
	return c
}
