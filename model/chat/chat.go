// Package chat asks models that speak Chat Completions: vLLM, Ollama, llama.cpp,
// LM Studio, OpenRouter, OpenAI itself.
package chat

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// Options describe an upstream.
type Options struct {
	BaseURL string // such as http://localhost:8000/v1
	APIKey  string
	Headers map[string]string
	Log     *slog.Logger

	Connect    time.Duration // to connect; default 10 seconds
	FirstToken time.Duration // from the request to the answer's first byte; default 5 minutes, for models that load
	Silence    time.Duration // between two chunks; default 2 minutes
}

// A Provider is one upstream. It is safe for concurrent use.
type Provider struct {
	client openai.Client
	opts   Options
}

var (
	_ model.Provider = (*Provider)(nil)
	_ model.Lister   = (*Provider)(nil)
)

// New returns a provider. Nothing is connected yet.
func New(opts Options) (*Provider, error) {
	if opts.BaseURL == "" {
		return nil, errors.New("the upstream's base URL is missing")
	}
	orDefault(&opts.Connect, 10*time.Second)
	orDefault(&opts.FirstToken, 5*time.Minute)
	orDefault(&opts.Silence, 2*time.Minute)
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: opts.Connect, KeepAlive: 30 * time.Second}).DialContext
	transport.ResponseHeaderTimeout = opts.FirstToken
	transport.MaxIdleConnsPerHost = 64
	options := []option.RequestOption{
		option.WithBaseURL(opts.BaseURL), option.WithAPIKey(opts.APIKey), option.WithMaxRetries(0),
		option.WithHTTPClient(&http.Client{Transport: transport}),
	}
	if opts.APIKey == "" { // the SDK would take one from the environment
		options = append(options, option.WithHeaderDel("Authorization"))
	}
	for k, v := range opts.Headers {
		options = append(options, option.WithHeader(k, v))
	}
	return &Provider{client: openai.NewClient(options...), opts: opts}, nil
}

func orDefault(d *time.Duration, v time.Duration) {
	if *d == 0 {
		*d = v
	}
}

// errSilent is why a stream is cut that sends nothing any more.
var errSilent = errors.New("the upstream fell silent")

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		params, err := p.params(req)
		if err != nil {
			yield(nil, err)
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		stream := p.client.Chat.Completions.NewStreaming(ctx, params)
		defer stream.Close()
		silence := time.AfterFunc(p.opts.FirstToken, func() { cancel(errSilent) })
		defer silence.Stop()
		var a answer
		for stream.Next() {
			silence.Reset(p.opts.Silence)
			chunk := stream.Current()
			deltas, err := a.take(&chunk)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, d := range deltas {
				if !yield(d, nil) {
					return
				}
			}
		}
		if err := stream.Err(); err != nil {
			yield(nil, upstreamError(ctx, err))
			return
		}
		finish, err := a.finish()
		if err != nil {
			yield(nil, err)
			return
		}
		yield(finish, nil)
	}
}

// Models implements model.Lister.
func (p *Provider) Models(ctx context.Context) ([]berth.Model, error) {
	page, err := p.client.Models.List(ctx)
	if err != nil {
		return nil, upstreamError(ctx, err)
	}
	var all []berth.Model
	for _, m := range page.Data {
		all = append(all, berth.Model{ID: m.ID, Object: "model", Created: m.Created, OwnedBy: m.OwnedBy})
	}
	return all, nil
}

// upstreamError turns what the SDK reports into what the client may know. The
// message is the upstream's own, which never holds the key.
func upstreamError(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errSilent) {
		return context.Cause(ctx)
	}
	e, ok := errors.AsType[*openai.Error](err)
	if !ok {
		return &berth.Error{Code: berth.CodeUpstream, Message: "The model's server could not be reached or broke off.", Err: errors.Join(err, silent(ctx))}
	}
	message := e.Message
	if message == "" {
		message = fmt.Sprintf("The model's server answered %d.", e.StatusCode)
	}
	out := &berth.Error{Code: berth.CodeUpstream, Message: message}
	switch e.StatusCode {
	case http.StatusTooManyRequests:
		out.Code = berth.CodeRateLimited
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		out.Code, out.Wire, out.Param = berth.CodeInvalid, e.Code, e.Param
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		// Berth's own configuration is wrong: trying again would not help, and the
		// client cannot mend it.
		out.Code, out.Wire = berth.CodeUnavailable, "upstream_refused"
		out.Message = fmt.Sprintf("The model's server refused the request (%d).", e.StatusCode)
		out.Err = errors.New(message)
	}
	if after, ok := retryAfter(e.Response); ok {
		return model.WithRetryAfter(out, after)
	}
	return out
}

func silent(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return nil
}

func retryAfter(resp *http.Response) (time.Duration, bool) {
	if resp == nil {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(resp.Header.Get("Retry-After"), 64)
	if err != nil || seconds < 0 || seconds > 3600 {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}
