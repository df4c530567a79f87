package balance

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/model"
)

// Limits bound the requests to an upstream; 0 means no limit. Requests beyond them
// wait in order of arrival.
type Limits struct {
	Concurrency       int // turns at the same time
	RequestsPerMinute int
	TokensPerMinute   int           // estimated input tokens and output tokens
	Wait              time.Duration // how long a request may wait; default 10 s
}

func (l Limits) check() error {
	if l.Concurrency < 0 || l.RequestsPerMinute < 0 || l.TokensPerMinute < 0 || l.Wait < 0 {
		return errors.New("limits must not be negative")
	}
	return nil
}

// errBusy is in the chain of an error about limits that are reached.
var errBusy = errors.New("the upstream's limits are reached")

// A gate admits requests within the limits.
type gate struct {
	wait     time.Duration
	slots    *semaphore.Weighted // nil without a limit, as are the next two
	requests *rate.Limiter
	tokens   *rate.Limiter

	waiting, inside atomic.Int64
}

func newGate(l Limits) *gate {
	g := &gate{wait: cmp.Or(l.Wait, 10*time.Second)}
	if l.Concurrency > 0 {
		g.slots = semaphore.NewWeighted(int64(l.Concurrency))
	}
	// Bursts are a tenth of a minute's requests, and a whole minute's tokens, because
	// a single request may need them.
	perMinute := func(n, burst int) *rate.Limiter {
		if n == 0 {
			return nil
		}
		return rate.NewLimiter(rate.Limit(float64(n)/60), max(1, burst))
	}
	g.requests = perMinute(l.RequestsPerMinute, l.RequestsPerMinute/10)
	g.tokens = perMinute(l.TokensPerMinute, l.TokensPerMinute)
	return g
}

// enter waits until the limits admit the request. Without wait it fails instead of
// waiting. The caller must call release with the tokens used.
func (g *gate) enter(ctx context.Context, req *model.Request, wait bool) (release func(tokens int), err error) {
	g.waiting.Add(1)
	defer g.waiting.Add(-1)
	var maxWait time.Duration
	if wait {
		maxWait = g.wait
	}
	until := time.Now().Add(maxWait)
	if err := g.slot(ctx, maxWait); err != nil {
		return nil, err
	}
	free := func() {
		if g.slots != nil {
			g.slots.Release(1)
		}
	}
	need, err := g.pace(ctx, req, time.Until(until))
	if err != nil {
		free()
		return nil, err
	}
	g.inside.Add(1)
	return func(used int) {
		g.inside.Add(-1)
		free()
		if g.tokens != nil && used > need {
			g.tokens.ReserveN(time.Now(), min(used-need, g.tokens.Burst())) // later requests wait for them
		}
	}, nil
}

// slot acquires a slot for a concurrent turn.
func (g *gate) slot(ctx context.Context, maxWait time.Duration) error {
	if g.slots == nil || g.slots.TryAcquire(1) {
		return nil
	}
	waited, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	if g.slots.Acquire(waited, 1) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return busy(time.Second)
}

// pace reserves a request and its estimated tokens, and waits until they are
// available. It returns the tokens reserved.
func (g *gate) pace(ctx context.Context, req *model.Request, maxWait time.Duration) (need int, err error) {
	now := time.Now()
	var booked []*rate.Reservation
	if g.requests != nil {
		booked = append(booked, g.requests.ReserveN(now, 1))
	}
	if g.tokens != nil {
		need = min(model.Estimate(req), g.tokens.Burst())
		booked = append(booked, g.tokens.ReserveN(now, need))
	}
	var delay time.Duration
	for _, r := range booked {
		delay = max(delay, r.DelayFrom(now))
	}
	if delay == 0 {
		return need, nil
	}
	if delay > maxWait {
		err = busy(delay)
	} else {
		err = backoff.Sleep(ctx, delay)
	}
	if err != nil {
		for _, r := range booked {
			r.CancelAt(now)
		}
	}
	return need, err
}

func busy(after time.Duration) error {
	return model.WithRetryAfter(&berth.Error{Code: berth.CodeRateLimited, Err: errBusy,
		Message: "The configured limits of the model's server are reached. Please try again later."}, after)
}
