// Package anthropic is the provider for servers that speak Anthropic's Messages API.
package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/upstream"
)

// BaseURL is the address of Anthropic's own server.
const BaseURL = "https://api.anthropic.com"

// version is the version of the Messages API.
const version = "2023-06-01"

// Options configure an upstream that speaks Messages. The zero values of the fields
// below the first suit Anthropic.
type Options struct {
	upstream.Options // BaseURL has no /v1; the default is Anthropic's

	// MaxTokens is the output limit of requests without one, because Messages requires
	// it. The default is the model's maximum as far as its name shows it, else 32000.
	MaxTokens int

	// Thinking selects how a model is made to think: "budget", with a number of
	// tokens, or "adaptive", as it sees fit. The default is adaptive for Claude 4.6
	// and later, and budget for older models and other vendors.
	Thinking string

	// Structured selects how a JSON schema is enforced: "format", with output_config,
	// or "tool", with a tool whose arguments are the answer. The default is tool for
	// Claude models before 4.5, else format.
	Structured string

	// Cache is how long the vendor caches the context, to be read again at a tenth of
	// the price: "5m", the default, "1h", or "off".
	Cache string

	// NativeTools are the types of tools for which models get the tools of Anthropic that they are
	// trained on, from the variable NativeTools. nil means those that a Claude model is documented to
	// have, and none for other models.
	NativeTools []string
}

// A Provider is one upstream. It is safe for concurrent use.
type Provider struct {
	client *upstream.Client
	opts   Options
	up     *upstream.Upstream
}

var (
	_ model.Provider = (*Provider)(nil)
	_ model.Lister   = (*Provider)(nil)

	_ model.Forwarder     = (*Provider)(nil)
	_ model.EndpointOwner = (*Provider)(nil)
)

// New returns a provider. It does not connect.
func New(opts Options) (*Provider, error) {
	if opts.BaseURL == "" {
		opts.BaseURL = BaseURL
	}
	opts.BaseURL = strings.TrimSuffix(strings.TrimRight(opts.BaseURL, "/"), "/v1")
	up, err := upstream.New(opts.Options)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(
		upstream.Check("thinking", opts.Thinking, "budget", "adaptive"),
		upstream.Check("structured", opts.Structured, "format", "tool"),
		upstream.Check("cache", opts.Cache, "5m", "1h", "off"),
	); err != nil {
		return nil, err
	}
	for _, name := range opts.NativeTools {
		if err := upstream.Check("native_tools", name, NativeTools...); err != nil {
			return nil, err
		}
	}
	header := http.Header{"Anthropic-Version": {version}}
	if up.APIKey != "" {
		header.Set("X-Api-Key", up.APIKey)
	}
	return &Provider{client: up.Client(header), opts: opts, up: up}, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	body, err := p.request(req)
	if err != nil {
		return upstream.Fail(err)
	}
	header := http.Header{}
	var betas []string
	if body.Thinking != nil && body.Thinking.Binding != nil {
		betas = append(betas, betaBinding)
	}
	if body.vendor.computerBeta != "" {
		betas = append(betas, body.vendor.computerBeta)
	}
	if betas != nil {
		header.Set("Anthropic-Beta", strings.Join(betas, ","))
	}
	return p.up.Stream(ctx, upstream.Turn{
		Model:   req.Model,
		Send:    p.client.Post("v1/messages", body, header),
		Answer:  func() upstream.Answer { return newAnswer(req, body, p.up.Log) },
		Explain: explain,
	})
}

// HasEndpoint implements model.EndpointOwner.
func (p *Provider) HasEndpoint(endpoint string) bool { return endpoint == model.EndpointMessages }

// Forward implements model.Forwarder.
func (p *Provider) Forward(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	if !p.HasEndpoint(req.Forwarded.Endpoint) {
		return upstream.Fail(model.NoEndpoint(req.Forwarded.Endpoint, req.Model))
	}
	return p.up.ForwardBy(ctx, p.client, req, upstream.Forwarding{Path: "v1/messages", Usage: addUsage,
		Last: "message_stop", Explain: func(r *upstream.Refusal) upstream.Complaint {
			c := explain(r)
			c.Param = "" // the client knows the fields, which the message names
			return c
		}})
}

// addUsage updates usage by a whole message, or by an event of a stream.
func addUsage(used *berth.Usage, body []byte) error {
	var answer struct {
		Message struct {
			Usage usage `json:"usage"`
		} `json:"message"`
		Usage usage `json:"usage"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("decode usage: %w", err)
	}
	in := used.InputTokenDetails
	sum := usage{InputTokens: used.InputTokens - in.CachedTokens - in.CacheWriteTokens, CacheRead: in.CachedTokens,
		CacheCreation: in.CacheWriteTokens, OutputTokens: used.OutputTokens}
	sum.OutputDetails.ThinkingTokens = used.OutputTokenDetails.ReasoningTokens
	sum.update(&answer.Message.Usage)
	sum.update(&answer.Usage)
	*used = sum.total()
	return nil
}

// Models implements model.Lister.
func (p *Provider) Models(ctx context.Context) ([]berth.Model, error) {
	var page struct {
		Data []struct {
			ID        string    `json:"id"`
			CreatedAt time.Time `json:"created_at"`
		} `json:"data"`
	}
	if err := p.up.List(ctx, p.client.Get("v1/models?limit=1000"), explain, &page); err != nil {
		return nil, err
	}
	all := make([]berth.Model, 0, len(page.Data))
	for _, m := range page.Data {
		all = append(all, berth.Model{ID: m.ID, Object: "model", Created: m.CreatedAt.Unix(), OwnedBy: "anthropic"})
	}
	return all, nil
}

// statusOf maps Anthropic's error types to a status, for errors within a stream, which
// have none.
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

// explain decodes {"type":"error","error":{"type","message"}}, or a gateway's error.
func explain(r *upstream.Refusal) upstream.Complaint {
	c := upstream.Explain(r)
	var body struct {
		Error struct {
			Type string `json:"type"`
		} `json:"error"`
	}
	_ = json.Unmarshal(r.Body, &body) // a gateway's error may have another form
	if r.Status == 0 {
		c.Status = statusOf[body.Error.Type]
	}
	if strings.Contains(c.Message, "credit balance is too low") {
		c.Code = "insufficient_quota"
	}
	c.Param = paramOf(c.Message)
	return c
}

// paramOf returns the name in Responses of the field that a message starts with, or
// "".
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
