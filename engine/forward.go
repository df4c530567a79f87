package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/model/embedding"
	"github.com/berth-run/berth/store"
)

// What a forwarded request counts as.
const (
	UsageEmbedding  = store.UsageEmbedding
	UsageModeration = store.UsageModeration
)

// ForwarderOptions are a Forwarder's parts. Those without a default are required.
type ForwarderOptions struct {
	Models Router
	Usages store.Usages
	Quota  Quota // default no limit
	Retry  Retry
	Log    *slog.Logger
}

// A Forwarder passes requests to the upstreams of models. It needs no tools, so that tools can use it. It is safe for
// concurrent use.
type Forwarder struct {
	opts ForwarderOptions

	life context.Context // of the requests; ends with errStopping
	stop context.CancelCauseFunc
}

// NewForwarder returns a Forwarder.
func NewForwarder(opts ForwarderOptions) *Forwarder {
	if opts.Quota == nil {
		opts.Quota = noQuota{}
	}
	f := &Forwarder{opts: opts}
	f.life, f.stop = context.WithCancelCause(context.Background())
	return f
}

// Close ends the requests in progress with an error for their clients.
func (f *Forwarder) Close() { f.stop(errStopping) }

// A ForwardRequest is a request of an endpoint that a Forwarder passes to the upstream of
// its model.
type ForwardRequest struct {
	Model     string
	Forwarded model.Forwarded
	Usage     store.UsageKind // such as UsageEmbedding
	MaxTokens int             // of the output; 0 means unknown
}

// Forward sends a request to the upstream of its model and returns the upstream's answer in
// JSON. It counts against the project's limits as a response does, and its usage is
// recorded. Temporary errors are retried as those of turns are.
func (f *Forwarder) Forward(ctx context.Context, caller berth.Caller, req ForwardRequest) ([]byte, error) {
	booked, err := f.opts.Quota.Begin(ctx, caller, req.Forwarded.Tokens())
	if err != nil {
		return nil, err
	}
	var used berth.Usage
	defer func() { booked(used.TotalTokens) }()
	body, used, err := f.forward(ctx, caller, req)
	return body, err
}

// Embed returns a vector for each text, all of the same length. It counts as usage of a
// project, but not against its limits: it serves the operator's own configuration.
func (f *Forwarder) Embed(ctx context.Context, p berth.ProjectID, name string, texts []string) ([][]float32, error) {
	input, err := json.Marshal(texts)
	if err != nil {
		return nil, fmt.Errorf("encode texts: %w", err)
	}
	body, _, err := f.forward(ctx, berth.Caller{Project: p}, ForwardRequest{Model: name, Usage: store.UsageEmbedding,
		Forwarded: model.Forwarded{Endpoint: "embeddings", Fields: map[string]json.RawMessage{"input": input}}})
	if err != nil {
		return nil, err
	}
	return embedding.Decode(body, len(texts))
}

// Images sends a request of /v1/images/generations or /v1/images/edits to the upstream of a
// model, and yields the JSON of its answer, or of each event if its fields request a stream. It counts as usage of
// the project. It does not retry: an image costs too much to be made twice.
func (f *Forwarder) Images(ctx context.Context, caller berth.Caller, name string,
	image model.Forwarded) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		provider, upstream, err := f.opts.Models.Route(name)
		if err != nil {
			yield(nil, err)
			return
		}
		image.Stream = string(image.Fields["stream"]) == "true"
		req := ForwardRequest{Model: name, Usage: store.UsageImage, Forwarded: image}
		for d, err := range model.Forward(ctx, provider, &model.Request{Model: upstream, Forwarded: &req.Forwarded}) {
			if err != nil {
				yield(nil, err)
				return
			}
			switch d := d.(type) {
			case model.Body:
				if !yield(d.JSON, nil) {
					return
				}
			case model.Finish:
				f.count(ctx, caller, req, d)
				return
			}
		}
		yield(nil, berth.Errorf(berth.CodeUpstream, "The upstream ended its answer early."))
	}
}

// forward is Forward without the project's limits. It also returns the usage.
func (f *Forwarder) forward(ctx context.Context, caller berth.Caller, req ForwardRequest) ([]byte, berth.Usage, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(f.life, func() { cancel(errStopping) })()
	provider, name, err := f.opts.Models.Route(req.Model)
	if err != nil {
		return nil, berth.Usage{}, err
	}
	log := f.opts.Log.With("request_id", caller.RequestID)
	out := &model.Request{Model: name, Forwarded: &req.Forwarded}
	attempts := newTurnAttempts(f.opts.Retry)
	for {
		out.Attempt = attempts.number
		body, finish, err := answerOf(ctx, provider, out)
		if err == nil {
			f.count(ctx, caller, req, finish)
			return body, finish.Usage, nil
		}
		if errors.Is(err, model.ErrNotSent) {
			return nil, berth.Usage{}, unavailable(err)
		}
		after, more := attempts.next(err, false)
		if ctx.Err() != nil || !more {
			return nil, berth.Usage{}, err
		}
		log.Warn("retrying request to upstream", "endpoint", req.Forwarded.Endpoint, "attempt", attempts.number+1,
			"after", after, "err", err)
		if err := backoff.Sleep(ctx, after); err != nil {
			return nil, berth.Usage{}, err
		}
	}
}

// unavailable returns the error for a request whose upstream is not tried now, because it
// has failed too often. A turn waits for it; the client of a forwarded request can itself.
func unavailable(err error) error {
	after, _ := model.RetryAfter(err)
	message := "The upstream of this model has failed too often. Send the request again later."
	if e, ok := errors.AsType[*berth.Error](err); ok {
		message = e.Message
	}
	return &berth.Error{Code: berth.CodeUnavailable, Message: message, RetryAfter: after, Err: err}
}

// answerOf sends a request with a Forwarded once.
func answerOf(ctx context.Context, p model.Provider, req *model.Request) (body []byte, finish model.Finish, err error) {
	for d, err := range model.Forward(ctx, p, req) {
		if err != nil {
			return nil, model.Finish{}, err
		}
		switch d := d.(type) {
		case model.Body:
			body = d.JSON
		case model.Finish:
			if u := d.Usage; u.InputTokens < 0 || u.OutputTokens < 0 || u.TotalTokens < 0 {
				return nil, model.Finish{},
					broken{berth.Errorf(berth.CodeUpstream,
						"The upstream sent an answer with a negative number of tokens.")}
			}
			return body, d, nil
		}
	}
	if ctx.Err() != nil {
		return nil, model.Finish{}, context.Cause(ctx)
	}
	return nil, model.Finish{}, berth.Errorf(berth.CodeUpstream, "The upstream ended its answer early.")
}

// count records the usage of a forwarded request.
func (f *Forwarder) count(ctx context.Context, caller berth.Caller, req ForwardRequest, end model.Finish) {
	for _, used := range store.ForwardedUsage(caller, req.Usage, req.Model, end.Usage,
		turnsOf(end), time.Now()) {
		if err := f.opts.Usages.AddUsage(context.WithoutCancel(ctx), used); err != nil {
			f.opts.Log.Error("failed to record usage", "request_id", caller.RequestID, "err", err)
		}
	}
}
