// Package chat is the provider for servers that speak Chat Completions: vLLM, Ollama,
// llama.cpp, LM Studio, OpenRouter, OpenAI itself.
package chat

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/upstream"
)

// Options configure an upstream. The zero values of the dialect's fields suit most
// servers.
type Options struct {
	upstream.Options

	// SystemRole is the role of instructions and of developer messages: "system",
	// the default and the only one that most upstreams know, or "developer".
	SystemRole string

	// MaxTokens is the name of the output limit on the wire: "max_tokens" or
	// "max_completion_tokens". Ollama and LM Studio use only the former, vLLM and
	// llama.cpp either, OpenAI's reasoning models only the latter. The default is
	// max_completion_tokens for api.openai.com and max_tokens elsewhere.
	MaxTokens string

	// Reasoning is the field of assistant messages in which the upstream wants the
	// model's reasoning back: "reasoning_content" (DeepSeek, Moonshot) or "reasoning"
	// (OpenRouter, newer vLLM). If empty, the default, reasoning is not sent.
	Reasoning string

	// CallIDLength bounds the ids of calls, in bytes. Longer ids are replaced by a
	// digest of that length. The default is 40, OpenAI's bound. Mistral requires 9.
	CallIDLength int

	// CustomTools selects how custom tools are sent: "native", with their grammars, or
	// "function". The default is native for api.openai.com, and function elsewhere.
	CustomTools string
}

// A Provider is one upstream. It is safe for concurrent use.
type Provider struct {
	client *upstream.Client
	opts   Options
	up     *upstream.Upstream

	withoutHints atomic.Bool // the upstream has refused a hint
}

var (
	_ model.Provider  = (*Provider)(nil)
	_ model.Lister    = (*Provider)(nil)
	_ model.Forwarder = (*Provider)(nil)
)

// New returns a provider. It does not connect.
func New(opts Options) (*Provider, error) {
	up, err := upstream.New(opts.Options)
	if err != nil {
		return nil, err
	}
	if err := opts.complete(up.Base.Hostname()); err != nil {
		return nil, err
	}
	return &Provider{client: up.OpenAI(), opts: opts, up: up}, nil
}

// complete checks the options and fills in the defaults for a host.
func (o *Options) complete(host string) error {
	name := "max_tokens"
	if host == "api.openai.com" {
		name = "max_completion_tokens"
		o.CustomTools = cmp.Or(o.CustomTools, customNative)
	}
	o.CustomTools = cmp.Or(o.CustomTools, customFunction)
	o.MaxTokens = cmp.Or(o.MaxTokens, name)
	o.SystemRole = cmp.Or(o.SystemRole, "system")
	o.CallIDLength = cmp.Or(o.CallIDLength, 40)
	return errors.Join(
		upstream.Check("max_tokens", o.MaxTokens, "max_tokens", "max_completion_tokens"),
		upstream.Check("system_role", o.SystemRole, "system", "developer"),
		upstream.Check("reasoning", o.Reasoning, "reasoning", "reasoning_content"),
		upstream.Check("custom_tools", o.CustomTools, customNative, customFunction),
	)
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	body, err := p.request(req)
	if err != nil {
		return upstream.Fail(err)
	}
	return p.up.Stream(ctx, upstream.Turn{
		Model:   req.Model,
		Send:    func(ctx context.Context) (*http.Response, error) { return p.send(ctx, body) },
		Answer:  func() upstream.Answer { return newAnswer(req, p.up.Log) },
		Explain: explain,
	})
}

// send sends a request. If the upstream refuses a hint, it sends the request again
// without hints, and the provider sends none from then on.
func (p *Provider) send(ctx context.Context, body *request) (*http.Response, error) {
	post := p.client.Post("chat/completions", body, nil)
	res, err := post(ctx)
	if !refusesHints(body, err) {
		return res, err
	}
	p.withoutHints.Store(true)
	p.up.Log.Info("stopped sending prompt_cache_key and safety_identifier, which the upstream refuses", "err", err)
	body.hints = hints{}
	return post(ctx)
}

// refusesHints reports whether an upstream refused a request because of a hint. Hints
// do not change the answer's content, so the request can be sent without them.
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

// Forward implements model.Forwarder.
func (p *Provider) Forward(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	return p.up.Forward(ctx, p.client, req)
}

// Models implements model.Lister.
func (p *Provider) Models(ctx context.Context) ([]berth.Model, error) {
	return p.up.Models(ctx, p.client.Get("models"), explain)
}

// explain decodes an error. Param gets the field's name in Responses.
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
