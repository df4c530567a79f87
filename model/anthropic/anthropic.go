// Package anthropic asks models that speak Anthropic's Messages API.
package anthropic

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/upstream"
)

// BaseURL is where Anthropic's own server is.
const BaseURL = "https://api.anthropic.com"

// Options describe an upstream. Those below the first say where servers differ
// that speak Messages; their zero values suit Anthropic's.
type Options struct {
	upstream.Options // BaseURL has no /v1; the default is Anthropic's

	// MaxTokens is the bound on output where a request has none, because Messages
	// insists on one. The default is the most that the model can, as far as its name
	// tells, and 32000 for a name that tells nothing.
	MaxTokens int

	// Thinking is how a model is asked to think: "budget", with a number of tokens,
	// or "adaptive", as it sees fit. The default is adaptive from Claude 4.6 on and
	// budget for older models and those of other vendors.
	Thinking string

	// Structured is how a model is held to a JSON schema: "format", with
	// output_config, or "tool", with a tool whose arguments are the answer. The
	// default is format, but for Claude models before 4.5.
	Structured string

	// Cache is how long the context is kept to be read again at a tenth of the
	// price: "5m", the default, "1h", or "off".
	Cache string
}

// A Provider is one upstream. It is safe for concurrent use.
type Provider struct {
	client anthropic.Client
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
	opts.BaseURL = strings.TrimSuffix(strings.TrimRight(opts.BaseURL, "/"), "/v1")
	up, err := upstream.New(opts.Options)
	if err != nil {
		return nil, err
	}
	for _, choice := range []struct {
		value string
		of    []string
	}{
		{opts.Thinking, []string{"budget", "adaptive"}},
		{opts.Structured, []string{"format", "tool"}},
		{opts.Cache, []string{"5m", "1h", "off"}},
	} {
		if choice.value != "" && !strings.Contains(" "+strings.Join(choice.of, " ")+" ", " "+choice.value+" ") {
			return nil, fmt.Errorf("%q must be one of %q", choice.value, choice.of)
		}
	}
	options := []option.RequestOption{option.WithBaseURL(up.BaseURL), option.WithHTTPClient(up.HTTPClient),
		option.WithMaxRetries(0), option.WithoutOpenTelemetry()}
	if up.APIKey != "" {
		options = append(options, option.WithAPIKey(up.APIKey))
	}
	for k, v := range up.Headers {
		options = append(options, option.WithHeader(k, v))
	}
	// Not anthropic.NewClient: it takes keys and headers from the environment, which
	// belong to another upstream.
	return &Provider{client: anthropic.Client{Options: options}, opts: opts, up: up}, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	body, err := p.request(req)
	if err != nil {
		return func(yield func(model.Delta, error) bool) { yield(nil, err) }
	}
	var headers []option.RequestOption
	if body.Thinking != nil && body.Thinking.Binding != nil {
		headers = append(headers, option.WithHeader("anthropic-beta", betaBinding))
	}
	return p.up.Ask(ctx, upstream.Question{
		Model: req.Model,
		Send: func(ctx context.Context) (res *http.Response, err error) {
			err = p.client.Post(ctx, "v1/messages", body, &res, headers...)
			return res, err
		},
		Read: func(w *upstream.Watch) iter.Seq2[model.Delta, error] {
			a := newAnswer(req, p.up.Log)
			a.spoken = body.spoken
			return a.read(w)
		},
		Explain: explain,
	})
}

// Models implements model.Lister.
func (p *Provider) Models(ctx context.Context) ([]berth.Model, error) {
	body, err := p.up.Get(ctx, func(ctx context.Context) (res *http.Response, err error) {
		err = p.client.Get(ctx, "v1/models?limit=1000", nil, &res)
		return res, err
	}, explain)
	if err != nil {
		return nil, err
	}
	var page struct {
		Data []struct {
			ID        string    `json:"id"`
			CreatedAt time.Time `json:"created_at"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &page); err != nil {
		return nil, p.up.Broken(fmt.Errorf("the list of models: %w", err))
	}
	all := make([]berth.Model, 0, len(page.Data))
	for _, m := range page.Data {
		all = append(all, berth.Model{ID: m.ID, Object: "model", Created: m.CreatedAt.Unix(), OwnedBy: "anthropic"})
	}
	return all, nil
}

// statusOf are the statuses of Anthropic's types of errors, for errors within a
// stream, which have no status.
var statusOf = map[string]int{
	"invalid_request_error": http.StatusBadRequest,
	"authentication_error":  http.StatusUnauthorized,
	"billing_error":         http.StatusPaymentRequired,
	"permission_error":      http.StatusForbidden,
	"not_found_error":       http.StatusNotFound,
	"request_too_large":     http.StatusRequestEntityTooLarge,
	"rate_limit_error":      http.StatusTooManyRequests,
	"api_error":             http.StatusInternalServerError,
	"timeout_error":         http.StatusGatewayTimeout,
	"overloaded_error":      529,
}

// explain reads {"type":"error","error":{"type","message"}}, or what a gateway
// says in its place.
func explain(r *upstream.Refusal) upstream.Complaint {
	c := upstream.Explain(r)
	var body struct {
		Error struct {
			Type string `json:"type"`
		} `json:"error"`
	}
	_ = json.Unmarshal(r.Body, &body) // a gateway's may have another form
	if r.Status == 0 {
		c.Status = statusOf[body.Error.Type]
	}
	if strings.Contains(c.Message, "credit balance is too low") {
		c.Code = "insufficient_quota"
	}
	c.Param = paramOf(c.Message)
	return c
}

// paramOf is the name in Responses of the field that a message begins with.
func paramOf(message string) string {
	field, _, _ := strings.Cut(strings.TrimPrefix(message, "`"), ":")
	field, _, _ = strings.Cut(field, "`")
	first, _, _ := strings.Cut(field, ".")
	switch first {
	case "messages":
		return "input"
	case "max_tokens":
		return "max_output_tokens"
	case "system":
		return "instructions"
	case "thinking":
		return "reasoning.effort"
	case "output_config":
		if strings.HasPrefix(field, "output_config.effort") {
			return "reasoning.effort"
		}
		return "text.format"
	case "stop_sequences":
		return "stop"
	case "model", "temperature", "top_p", "tools", "tool_choice":
		return first
	}
	return ""
}
