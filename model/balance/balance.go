// Package balance sends a turn to one of several upstreams.
//
// A Group is the upstreams of one model: those that share its turns by weight, and
// those that are asked when none of them answers. A chain stays with the upstream
// that answered its last turn, for that one has its context cached and can read its
// own reasoning. Until the first word has come, a turn goes from one upstream to the
// next; after it, what to do is the caller's decision.
//
// An Upstream is one vendor's server under one account, with its keys, its limits,
// and a circuit breaker. Several groups may share it.
package balance

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A Target is an upstream as a group uses it.
type Target struct {
	Upstream *Upstream
	Model    string // its name for the model; empty is the one asked for
	Weight   int    // its share of the turns, among primaries; 0 is 1
}

// Options are a Group's parts.
type Options struct {
	Primaries []Target // at least one
	Fallbacks []Target // asked in this order when no primary answers

	// HedgeAfter is how long the first word is awaited before another upstream is
	// asked as well; who speaks first is heard, the other is left. 0 is never.
	HedgeAfter time.Duration

	Log *slog.Logger
}

// A Group is a model's upstreams. It is safe for concurrent use.
type Group struct {
	opts Options
}

var (
	_ model.Provider = (*Group)(nil)
	_ model.Lister   = (*Group)(nil)
)

// New returns a group.
func New(opts Options) (*Group, error) {
	if len(opts.Primaries) == 0 {
		return nil, errors.New("a model needs an upstream")
	}
	for _, t := range opts.Primaries {
		if t.Weight < 0 {
			return nil, fmt.Errorf("the weight of upstream %s is negative", t.Upstream.opts.Name)
		}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Group{opts}, nil
}

// Stream implements model.Provider. What a target answers before its first word,
// and another may answer better, is not told: an upstream that cannot be reached,
// fails, falls silent, is asked too much, refuses its key or lacks the model. What
// the client must mend is told at once. When all have failed, the error is that
// which gives the most hope.
func (g *Group) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		if g.opts.HedgeAfter > 0 && len(g.opts.Primaries)+len(g.opts.Fallbacks) > 1 {
			g.hedge(ctx, req, yield)
			return
		}
		if err := g.ask(ctx, req, g.plan(req), yield); err != nil {
			yield(nil, err)
		}
	}
}

// ask asks one target after the other until one answers. An error is one that
// nobody has been told; after it another may be asked.
func (g *Group) ask(ctx context.Context, req *model.Request, plan []Target, yield func(model.Delta, error) bool) error {
	var failed error
	busy := plan[:0:0]
	for i, t := range plan {
		wait := len(plan) == 1 || i == 0 && prefers(req, t)
		err := t.ask(ctx, req, wait, yield)
		if err == nil {
			return nil
		}
		if errors.Is(err, errBusy) {
			busy = append(busy, t)
		}
		failed = better(failed, err)
		if !elsewhere(ctx, err) {
			return err
		}
		if i+1 < len(plan) {
			g.opts.Log.Warn("a turn goes to the next upstream", "from", t.Upstream.opts.Name, "to", plan[i+1].Upstream.opts.Name, "err", err)
		}
	}
	if len(plan) == 1 {
		return failed
	}
	for _, t := range busy {
		err := t.ask(ctx, req, true, yield)
		if err == nil {
			return nil
		}
		failed = better(failed, err)
		if !elsewhere(ctx, err) {
			return err
		}
	}
	return failed
}

// elsewhere reports whether another upstream may do what one did not.
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

// better returns which of two errors gives more hope: that which may pass, and soon.
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

// Models implements model.Lister: what the first upstream has that answers.
func (g *Group) Models(ctx context.Context) (models []berth.Model, err error) {
	for _, t := range g.targets() {
		if models, err = t.Upstream.models(ctx); err == nil {
			return models, nil
		}
	}
	return nil, err
}

func (g *Group) targets() []Target {
	return append(g.opts.Primaries[:len(g.opts.Primaries):len(g.opts.Primaries)], g.opts.Fallbacks...)
}
