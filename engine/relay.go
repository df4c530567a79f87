package engine

import (
	"context"
	"errors"
	"iter"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

// Serves reports whether each upstream of a model is known to have an endpoint.
func (f *Forwarder) Serves(name, endpoint string) bool {
	provider, _, err := f.opts.Models.Route(name)
	return err == nil && model.HasEndpoint(provider, endpoint)
}

// Send sends a request to the upstream of its model, and yields the JSON of the answer, or of each event of a stream,
// unchanged. It counts against the project's limits as a response does, and its usage is recorded, also if the caller
// leaves before the end. Temporary errors are retried as those of turns are, until there is output.
func (f *Forwarder) Send(ctx context.Context, caller berth.Caller, req ForwardRequest) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		req.Usage = store.UsageResponse
		booked, err := f.opts.Quota.Begin(ctx, caller, req.Forwarded.Tokens()+req.MaxTokens)
		if err != nil {
			yield(nil, err)
			return
		}
		r := &passage{forwarder: f, caller: caller, req: req, yield: yield}
		defer func() { booked(r.finish.Usage.TotalTokens) }()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(f.life, func() { cancel(errStopping) })()
		if err := r.run(ctx); err != nil && !r.left {
			yield(nil, err)
		}
		if r.begun {
			f.count(ctx, caller, req, r.finish)
		}
	}
}

// A passage is one call of Forwarder.Send.
type passage struct {
	forwarder *Forwarder
	caller    berth.Caller
	req       ForwardRequest
	yield     func([]byte, error) bool

	begun  bool // there is output
	left   bool // the caller has stopped iterating
	finish model.Finish
}

// run sends the request until there is output, or an error that lasts.
func (r *passage) run(ctx context.Context) (err error) {
	provider, name, err := r.forwarder.opts.Models.Route(r.req.Model)
	if err != nil {
		return err
	}
	ctx, s := traceChat(ctx, name)
	defer func() { endChat(s, r.finish, err) }()
	out := &model.Request{Model: name, Forwarded: &r.req.Forwarded}
	attempts := newTurnAttempts(r.forwarder.opts.Retry)
	for {
		out.Attempt = attempts.number
		err := r.send(ctx, provider, out)
		if err == nil || r.begun {
			return err
		}
		if errors.Is(err, model.ErrNotSent) {
			return unavailable(err)
		}
		after, more := attempts.next(err, false)
		if ctx.Err() != nil || !more {
			return err
		}
		r.forwarder.opts.Log.Warn("retrying request to upstream", "request_id", r.caller.RequestID, "endpoint",
			r.req.Forwarded.Endpoint, "attempt", attempts.number+1, "after", after, "err", err)
		if err := backoff.Sleep(ctx, after); err != nil {
			return err
		}
	}
}

// send sends the request once.
func (r *passage) send(ctx context.Context, p model.Provider, req *model.Request) error {
	for d, err := range model.Forward(ctx, p, req) {
		if err != nil {
			return err
		}
		switch d := d.(type) {
		case model.Body:
			if u := d.Usage; u.InputTokens < 0 || u.OutputTokens < 0 {
				return broken{berth.Errorf(berth.CodeUpstream,
					"The upstream sent an answer with a negative number of tokens.")}
			}
			r.begun, r.finish.Usage = true, d.Usage
			if r.left = !r.yield(d.JSON, nil); r.left {
				return nil
			}
		case model.Finish:
			r.finish = d
			return nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return berth.Errorf(berth.CodeUpstream, "The upstream ended its answer early.")
}
