package balance

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/model"
)

// UpstreamOptions are an Upstream's parts.
type UpstreamOptions struct {
	Name string

	// Anonymous keeps the name for the log: answers do not tell it.
	Anonymous bool

	Keys    []Key // at least one, with different names; all of one account
	Limits  Limits
	Breaker Breaker
	Prices  Prices
	Log     *slog.Logger

	// FirstToken is told how long the first word of a turn took to come, of the
	// upstream's name for a model. It must not block. Default: nobody is.
	FirstToken func(upstream, model string, took time.Duration)
}

// A Key is one secret of an upstream, with the provider that asks with it.
type Key struct {
	Name     string // told in place of the secret: its environment variable
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

// NewUpstream returns an upstream. Nothing is connected yet.
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
	return &Upstream{opts: opts, keys: newRing(opts.Keys), gate: newGate(opts.Limits), breaker: newCircuits(opts.Breaker, who, opts.Log)}, nil
}

// ask asks the target's upstream. wait is false if the turn should rather go
// elsewhere than wait for the upstream's limits. An error is one that nobody has
// been told.
func (t Target) ask(ctx context.Context, req *model.Request, wait bool, yield func(model.Delta, error) bool) error {
	u := t.Upstream
	asked := *req
	asked.Model = cmp.Or(t.Model, req.Model)
	asked.Items = u.unstamp(req.Items)
	if err := u.breaker.ready(asked.Model); err != nil {
		return err
	}
	leave, err := u.gate.enter(ctx, &asked, wait)
	if err != nil {
		return err
	}
	used := 0
	defer func() { leave(used) }()
	tell := func(d model.Delta, err error) bool {
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
		err = u.try(ctx, k, &asked, tell)
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

// near is how soon an upstream may ask to be asked again for the turn to wait
// rather than to go elsewhere.
const near = time.Second

// preferred is the name of the key that answered the turn before, if it is known.
func (u *Upstream) preferred(req *model.Request) string {
	if req.Prefer.Upstream != u.opts.Name {
		return ""
	}
	return req.Prefer.Key
}

// blame notes an error that is about the key, so that others are asked first, and
// reports whether it was.
func (u *Upstream) blame(k *key, err error) bool {
	switch {
	case errors.Is(err, model.ErrKey):
		switch first := u.keys.refused(k); {
		case first && len(u.keys.keys) == 1:
			u.opts.Log.Error("an upstream refuses its only key, which is used all the same", "key", k.Name, "err", err)
		case first:
			u.opts.Log.Error("an upstream refuses a key, which is used after the others", "key", k.Name, "for", aside, "err", err)
		}
		u.keys.rest(k, aside, false)
		return true
	case berth.ErrorCode(err) == berth.CodeRateLimited:
		after, said := model.RetryAfter(err)
		u.keys.rest(k, cmp.Or(after, restTime), said)
		return true
	}
	return false
}

// errLeft is what the breaker is told of a question whose asker has left.
var errLeft = errors.New("the asker left")

// try asks with one key. An error is one that nobody has been told.
func (u *Upstream) try(ctx context.Context, k *key, req *model.Request, yield func(model.Delta, error) bool) error {
	report, err := u.breaker.allow(req.Model)
	if err != nil {
		return err
	}
	defer func() { report(errLeft) }() // if nothing else was reported
	u.count.asked.Add(1)
	begun, asked := false, time.Now()
	for d, err := range k.Provider.Stream(ctx, req) {
		switch {
		case err != nil && ctx.Err() != nil:
			if begun {
				yield(nil, err)
				return nil
			}
			return err
		case err != nil:
			report(err)
			if berth.ErrorCode(err) == berth.CodeUpstream {
				u.count.failed.Add(1)
			}
			if !begun {
				return err
			}
			u.breaker.broke(req.Model, err)
			yield(nil, err)
			return nil
		case !begun:
			begun = true
			report(nil)
			u.opts.FirstToken(u.opts.Name, req.Model, time.Since(asked))
		}
		switch said := d.(type) {
		case model.Finish:
			yield(u.signed(said, k, req), nil)
			return nil
		case model.Item:
			said.Item = u.stamp(said.Item)
			d = said
		}
		if !yield(d, nil) {
			return nil
		}
	}
	err = berth.Errorf(berth.CodeUpstream, "The model stopped in the middle of its answer.")
	if begun {
		yield(nil, err)
		return nil
	}
	report(err)
	return err
}

// signed says who answered a turn, and what it costs.
func (u *Upstream) signed(f model.Finish, k *key, req *model.Request) model.Finish {
	u.count.answered.Add(1)
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

// models returns what the upstream says it has.
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
