package balance

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/model"
)

// UpstreamOptions configure an Upstream.
type UpstreamOptions struct {
	Name string

	// Anonymous hides the name from clients. It appears in logs only.
	Anonymous bool

	Keys    []Key // at least one, with distinct names; all of one account
	Limits  Limits
	Breaker Breaker
	Prices  Prices
	Log     *slog.Logger

	// FirstToken is called with the time to the first output of a turn and the
	// upstream's name for the model. It must not block. nil means no call.
	FirstToken func(upstream, model string, took time.Duration)
}

// A Key is one secret of an upstream, and the provider that uses it.
type Key struct {
	Name     string // shown in place of the secret: its environment variable
	Provider model.Provider
}

// An Upstream is one vendor's server under one account. It is safe for concurrent use.
type Upstream struct {
	opts    UpstreamOptions
	keys    *ring
	gate    *gate
	breaker *circuits
	count   counters
}

// NewUpstream returns an upstream. It does not connect.
func NewUpstream(opts UpstreamOptions) (*Upstream, error) {
	if len(opts.Keys) == 0 {
		return nil, errors.New("an upstream needs a key")
	}
	if err := opts.Limits.check(); err != nil {
		return nil, err
	}
	if err := opts.Prices.check(); err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.FirstToken == nil {
		opts.FirstToken = func(string, string, time.Duration) {}
	}
	opts.Log = opts.Log.With("upstream", opts.Name)
	who := "The upstream '" + opts.Name + "'"
	if opts.Anonymous || opts.Name == "" {
		who = "The model's server"
	}
	return &Upstream{opts: opts, keys: newRing(opts.Keys), gate: newGate(opts.Limits),
		breaker: newCircuits(opts.Breaker, who, opts.Log)}, nil
}

// try sends the turn to the target's upstream. If wait is false, it fails with errBusy
// instead of waiting for the upstream's limits. It returns an error only if it has
// yielded nothing.
func (t Target) try(ctx context.Context, req *model.Request, wait bool, yield func(model.Delta, error) bool) error {
	u := t.Upstream
	turn := *req
	turn.Model = cmp.Or(t.Model, req.Model)
	turn.Items = u.unstamp(req.Items)
	if err := u.breaker.ready(turn.Model); err != nil {
		return err
	}
	release, err := u.gate.enter(ctx, &turn, wait)
	if err != nil {
		return err
	}
	used := 0
	defer func() { release(used) }()
	emit := func(d model.Delta, err error) bool {
		if f, ok := d.(model.Finish); ok {
			used = f.Usage.TotalTokens
		}
		return yield(d, err)
	}
	var failed error
	var tried []*key
	for again := true; ; {
		k, err := u.keys.take(u.preferred(req), tried)
		if errors.Is(err, errTried) || err != nil && failed != nil && len(u.keys.keys) == 1 {
			return failed
		}
		if err != nil {
			return better(failed, err)
		}
		err = u.tryKey(ctx, k, &turn, emit)
		u.keys.put(k)
		if err == nil {
			u.keys.accepted(k)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		failed = better(failed, err)
		if after, ok := model.RetryAfter(err); ok && again && after <= near && len(u.keys.keys) == 1 {
			again = false
			if err := backoff.Sleep(ctx, after); err != nil {
				return err
			}
			continue
		}
		if !u.blame(k, err) {
			return failed
		}
		tried = append(tried, k)
	}
}

// near bounds the requested wait after which the same upstream is tried again instead
// of another.
const near = time.Second

// preferred returns the name of the key that answered the turn before, or "".
func (u *Upstream) preferred(req *model.Request) string {
	if req.Prefer.Upstream != u.opts.Name {
		return ""
	}
	return req.Prefer.Key
}

// blame reports whether err concerns the key. If so, other keys are used first.
func (u *Upstream) blame(k *key, err error) bool {
	switch {
	case errors.Is(err, model.ErrKey):
		switch first := u.keys.refused(k); {
		case first && len(u.keys.keys) == 1:
			u.opts.Log.Error("upstream refuses its only key; continuing to use it", "key", k.Name, "err", err)
		case first:
			u.opts.Log.Error("upstream refuses a key; using it last", "key", k.Name, "for", aside, "err", err)
		}
		u.keys.rest(k, aside, false)
		return true
	case berth.ErrorCode(err) == berth.CodeRateLimited:
		after, requested := model.RetryAfter(err)
		u.keys.rest(k, cmp.Or(after, restTime), requested)
		return true
	}
	return false
}

// errLeft is reported to the breaker when the caller left before an outcome.
var errLeft = errors.New("the caller left")

// tryKey sends the turn with one key. It returns an error only if it has yielded
// nothing.
func (u *Upstream) tryKey(ctx context.Context, k *key, req *model.Request, yield func(model.Delta, error) bool) error {
	report, err := u.breaker.allow(req.Model)
	if err != nil {
		return err
	}
	defer func() { report(errLeft) }() // if nothing else was reported
	u.count.turns.Add(1)
	answered, start := false, time.Now()
	stream := k.Provider.Stream
	if req.Forwarded != nil {
		stream = func(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
			return model.Forward(ctx, k.Provider, req)
		}
	}
	for d, err := range stream(ctx, req) {
		switch {
		case err != nil && ctx.Err() != nil:
			if answered {
				yield(nil, err)
				return nil
			}
			return err
		case err != nil:
			report(err)
			if berth.ErrorCode(err) == berth.CodeUpstream {
				u.count.failed.Add(1)
			}
			if !answered {
				return err
			}
			u.breaker.broke(req.Model, err)
			yield(nil, err)
			return nil
		case !answered:
			answered = true
			report(nil)
			trace.SpanFromContext(ctx).AddEvent("first token")
			u.count.first.add(time.Since(start))
			if req.Forwarded == nil {
				u.opts.FirstToken(u.opts.Name, req.Model, time.Since(start))
			}
		}
		switch v := d.(type) {
		case model.Finish:
			u.count.whole.add(time.Since(start))
			yield(u.signed(v, k, req), nil)
			return nil
		case model.Item:
			v.Item = u.stamp(v.Item)
			d = v
		}
		if !yield(d, nil) {
			return nil
		}
	}
	err = berth.Errorf(berth.CodeUpstream, "The model stopped in the middle of its answer.")
	if answered {
		yield(nil, err)
		return nil
	}
	report(err)
	return err
}

// signed adds the origin and cost of a turn.
func (u *Upstream) signed(f model.Finish, k *key, req *model.Request) model.Finish {
	u.count.completed.Add(1)
	u.count.input.Add(int64(f.Usage.InputTokens))
	u.count.output.Add(int64(f.Usage.OutputTokens))
	f.Cost = u.opts.Prices.cost(req.Model, f.Usage)
	if !u.opts.Anonymous {
		f.Origin = model.Origin{Upstream: u.opts.Name, Model: req.Model}
		if len(u.keys.keys) > 1 {
			f.Origin.Key = k.Name
		}
	}
	return f
}

// models returns the upstream's list of models.
func (u *Upstream) models(ctx context.Context) ([]berth.Model, error) {
	k, err := u.keys.take("", nil)
	if err != nil {
		return nil, err
	}
	defer u.keys.put(k)
	if l, ok := k.Provider.(model.Lister); ok {
		return l.Models(ctx)
	}
	return nil, nil
}
