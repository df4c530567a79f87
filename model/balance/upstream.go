package balance

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
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

// counters count since the server started.
type counters struct {
	turns, completed, failed atomic.Int64
	input, output            atomic.Int64
	first, whole             average // times to the first output and of completed turns
}

// An average is a mean in which the latest values count most. It is safe for concurrent use.
type average struct {
	mu  sync.Mutex
	of  time.Duration
	any bool
}

// add adds a value: a tenth of the average is the latest.
func (a *average) add(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.any {
		a.of, a.any = d, true
	}
	a.of += (d - a.of) / 10
}

// milliseconds returns the average; 0 before the first value.
func (a *average) milliseconds() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of.Milliseconds()
}
