// Package chat asks models that speak Chat Completions: vLLM, Ollama, llama.cpp,
// LM Studio, OpenRouter, OpenAI itself.
package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// Options describe an upstream. The last group says where upstreams differ; its
// zero values suit most of them.
type Options struct {
	BaseURL string            // such as http://localhost:8000/v1
	APIKey  string            // empty sends no Authorization
	Headers map[string]string // sent with every request; they may hold secrets
	Log     *slog.Logger

	HTTPClient *http.Client  // default: one of its own, with the environment's proxy
	Connect    time.Duration // to connect, unless HTTPClient is given; default 10 seconds
	FirstToken time.Duration // without a sign of life before the first word; default 10 minutes, for models that load
	Silence    time.Duration // the same after it; default 10 minutes: Ollama is silent while a model writes a call

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
	client  openai.Client
	opts    Options
	secrets *strings.Replacer
}

var (
	_ model.Provider = (*Provider)(nil)
	_ model.Lister   = (*Provider)(nil)
)

// maxModels bounds the upstream's list of models, in bytes.
const maxModels = 8 << 20

// New returns a provider. Nothing is connected yet.
func New(opts Options) (*Provider, error) {
	base, err := opts.complete()
	if err != nil {
		return nil, err
	}
	p := &Provider{opts: opts, secrets: redactor(&opts, base)}
	options := []option.RequestOption{
		option.WithBaseURL(opts.BaseURL), option.WithAPIKey(opts.APIKey), option.WithHTTPClient(opts.HTTPClient),
		option.WithMaxRetries(0), option.WithMiddleware(refuse),
	}
	for k, v := range opts.Headers {
		options = append(options, option.WithHeader(k, v))
	}
	// Not openai.NewClient: it takes keys and headers from the environment, which
	// belong to another upstream.
	p.client = openai.Client{Options: options}
	return p, nil
}

// complete checks the options and fills in the defaults.
func (o *Options) complete() (*url.URL, error) {
	o.APIKey = strings.TrimSpace(o.APIKey)
	base, err := url.Parse(o.BaseURL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, errors.New("the upstream's base URL must be an http or https address") // without it: it may hold a password
	}
	name := "max_tokens"
	if base.Hostname() == "api.openai.com" {
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
			return nil, fmt.Errorf("%q must be %q or %q", choice.value, choice.a, choice.b)
		}
	}
	o.Connect = cmp.Or(o.Connect, 10*time.Second)
	o.FirstToken = cmp.Or(o.FirstToken, 10*time.Minute)
	o.Silence = cmp.Or(o.Silence, 10*time.Minute)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.HTTPClient == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DialContext = (&net.Dialer{Timeout: o.Connect, KeepAlive: 30 * time.Second}).DialContext
		transport.MaxIdleConnsPerHost = 64
		o.HTTPClient = &http.Client{Transport: transport}
	}
	return base, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		body, err := p.request(req)
		if err != nil {
			yield(nil, err)
			return
		}
		watched, w := newWatch(ctx, p.opts.FirstToken)
		defer w.stop()
		var res *http.Response
		if err := p.client.Post(watched, "chat/completions", body, &res); err != nil {
			yield(nil, p.failure(ctx, watched, req.Model, err))
			return
		}
		defer res.Body.Close()
		w.watch(res.Body)
		a := newAnswer(req, p.opts.Log)
		a.begun = func() { w.limit = p.opts.Silence }
		a.ended = func() { w.limit = min(p.opts.Silence, afterEnd) }
		for d, err := range a.read(w) {
			if err != nil {
				yield(nil, p.failure(ctx, watched, req.Model, err))
				return
			}
			if !yield(d, nil) {
				return
			}
		}
	}
}

// Models implements model.Lister.
func (p *Provider) Models(ctx context.Context) ([]berth.Model, error) {
	var res *http.Response
	if err := p.client.Get(ctx, "models", nil, &res); err != nil {
		return nil, p.failure(ctx, ctx, "", err)
	}
	defer res.Body.Close()
	var page struct {
		Data []struct {
			ID      string  `json:"id"`
			Created float64 `json:"created"` // a whole number, except where it is not
			OwnedBy string  `json:"owned_by"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxModels)).Decode(&page); err != nil {
		return nil, p.failure(ctx, ctx, "", fmt.Errorf("the list of models: %w", err))
	}
	all := make([]berth.Model, 0, len(page.Data))
	for _, m := range page.Data {
		all = append(all, berth.Model{ID: m.ID, Object: "model", Created: int64(m.Created), OwnedBy: m.OwnedBy})
	}
	return all, nil
}
