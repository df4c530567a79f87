package balance

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/model"
)

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

// elsewhere reports whether another upstream may succeed after err.
func elsewhere(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	switch berth.ErrorCode(err) {
	case berth.CodeUpstream, berth.CodeRateLimited, berth.CodeUnavailable, berth.CodeNotFound:
		return true
	}
	return false
}

// better returns the more promising of two errors: the one that may pass, and sooner.
// err may be nil.
func better(err, next error) error {
	if err == nil {
		return next
	}
	passes := func(err error) bool {
		code := berth.ErrorCode(err)
		return code == berth.CodeUpstream || code == berth.CodeRateLimited
	}
	if passes(err) != passes(next) {
		if passes(err) {
			return err
		}
		return next
	}
	a, aKnown := model.RetryAfter(err)
	b, bKnown := model.RetryAfter(next)
	if passes(err) && (!bKnown && aKnown || aKnown && b < a) {
		return next
	}
	return err
}
