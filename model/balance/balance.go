// Package balance sends a turn to one of several upstreams.
//
// A Group holds the upstreams of one model: primaries, which share its turns by
// weight, and fallbacks, which are used when no primary answers. A chain stays with
// the upstream that answered its last turn, because that upstream has the context
// cached and can read its own reasoning. Until the first output arrives, a failed turn
// moves to the next upstream; after that, the caller decides.
//
// An Upstream is one vendor's server under one account, with its keys, its limits, and
// a circuit breaker. Several groups may share it.
package balance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// A Target is an upstream within a group.
type Target struct {
	Upstream *Upstream
	Model    string // its name for the model; empty means the request's
	Weight   int    // its share of the turns, among primaries; 0 means 1
}

// Options configure a Group.
type Options struct {
	Primaries []Target // at least one
	Fallbacks []Target // tried in this order when no primary answers

	// HedgeAfter is how long to wait for the first output before a second request
	// starts at another upstream. The first to answer wins, and the other request is
	// cancelled. 0 means never.
	HedgeAfter time.Duration

	Log *slog.Logger
}

// A Group is the upstreams of a model. It is safe for concurrent use.
type Group struct {
	opts Options
}

var (
	_ model.Provider  = (*Group)(nil)
	_ model.Lister    = (*Group)(nil)
	_ model.Forwarder = (*Group)(nil)
	_ model.ToolOwner = (*Group)(nil)

	_ model.EndpointOwner = (*Group)(nil)
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

// Stream implements model.Provider. If a target fails before its first output and
// another may succeed, the error is not yielded: the upstream is unreachable, fails,
// stops responding, is rate limited, refuses its key or lacks the model. Errors that
// the client must fix are yielded immediately. If all targets fail, the error is the most
// promising one.
func (g *Group) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		if g.opts.HedgeAfter > 0 && len(g.opts.Primaries)+len(g.opts.Fallbacks) > 1 {
			g.hedge(ctx, req, yield)
			return
		}
		if err := g.try(ctx, req, g.plan(req), yield); err != nil {
			yield(nil, err)
		}
	}
}

// Forward implements model.Forwarder. It tries the targets as Stream does, without hedging.
func (g *Group) Forward(ctx context.Context, req *model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		if err := g.try(ctx, req, g.plan(req), yield); err != nil {
			yield(nil, err)
		}
	}
}

// HasTool implements model.ToolOwner. All targets must have the tool, because any of them
// may answer.
func (g *Group) HasTool(name, toolType string) bool {
	return !slices.ContainsFunc(g.targets(), func(t Target) bool {
		return !model.HasTool(t.Upstream.opts.Keys[0].Provider, cmp.Or(t.Model, name), toolType)
	})
}

// HasEndpoint implements model.EndpointOwner. All targets must have the endpoint.
func (g *Group) HasEndpoint(endpoint string) bool {
	return !slices.ContainsFunc(g.targets(), func(t Target) bool {
		return !model.HasEndpoint(t.Upstream.opts.Keys[0].Provider, endpoint)
	})
}

// try tries the targets in order until one answers. It returns an error only if it has
// yielded nothing, so another target may be tried.
func (g *Group) try(ctx context.Context, req *model.Request, plan []Target, yield func(model.Delta, error) bool) error {
	var failed error
	busy := plan[:0:0]
	for i, t := range plan {
		wait := len(plan) == 1 || i == 0 && prefers(req, t)
		err := t.try(ctx, req, wait, yield)
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
			g.opts.Log.Warn("moved turn to next upstream", "from", t.Upstream.opts.Name, "to",
				plan[i+1].Upstream.opts.Name, "err", err)
		}
	}
	if len(plan) == 1 {
		return failed
	}
	for _, t := range busy {
		err := t.try(ctx, req, true, yield)
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

// Models implements model.Lister. It returns the models of the first upstream that
// answers.
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
