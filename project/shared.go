package project

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/store"
)

// In a cluster, the limits of a project hold for all servers together. The store knows what each
// server has of them. A server draws as much as a busy one uses in about a second, so that few
// requests of a project with high limits write to the store, and returns what it does not use.
// With low limits, each request of the project draws its own.
//
// The numbers that a server has count until it returns them: a limit is never exceeded, but may
// be reached up to a second early, while another server has more than it uses.

const (
	// sharesPerLimit is how many servers can have a spare part of a number at the same time.
	sharesPerLimit = 64
	// drawSeconds is how many seconds of a rate are drawn at a time.
	drawSeconds = 1
	// settleInterval is the time between two rounds that return unused shares.
	settleInterval = time.Second
	// drawAgain is the time until a number that is used up is drawn a second time, because another
	// server may be about to return what a client has just ended. It doubles up to drawAgainMost,
	// unless that was in vain a moment ago.
	drawAgain     = 30 * time.Millisecond
	drawAgainMost = 240 * time.Millisecond
)

// shares are what all servers of a cluster divide.
type shares struct {
	store.Shares
	server  string
	running func(berth.ProjectID) int // containers of this server
	log     *slog.Logger
	ctx     context.Context // until the server stops
}

// A share is what this server has of a project's limits.
type share struct {
	flight                chan struct{} // holds a value while the share is drawn; taken before Quota.mu
	responses, containers int64         // granted to this server
	drawnFor              drawnFor      // guarded by Quota.mu
	settling              bool          // settle has been started
	full                  time.Time     // when a number was last used up for long; guarded by flight
}

// drawnFor is when each number was last drawn for a request.
type drawnFor struct{ responses, containers time.Time }

// unknown is a number that must be drawn again.
const unknown = -1

func newShare() *share { return &share{flight: make(chan struct{}, 1)} }

// Share makes the limits hold for all servers of a cluster together, until ctx ends. running
// returns how many containers of a project this server has. It must be called before the first
// request.
func (q *Quota) Share(ctx context.Context, s store.Shares, server string, running func(berth.ProjectID) int,
	log *slog.Logger) error {
	if err := s.ForgetShares(ctx, server); err != nil {
		return fmt.Errorf("forget former shares: %w", err)
	}
	q.shares = &shares{Shares: s, server: server, running: running, log: log, ctx: ctx}
	go func() {
		for backoff.Sleep(ctx, settleInterval) == nil {
			q.mu.Lock()
			for _, p := range q.known {
				q.settleLocked(p, true)
			}
			q.mu.Unlock()
		}
	}()
	return nil
}

// ForgetShares makes the server draw all that it uses again: others have removed its shares.
func (q *Quota) ForgetShares() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.known {
		if p.share != nil {
			p.share.responses, p.share.containers = unknown, unknown
			q.settleLocked(p, false)
		}
	}
}

// mostResponses returns how many responses this server may have in progress.
func (p *bounded) mostResponses(limit int64) int64 {
	if p.share == nil {
		return limit
	}
	return p.share.responses
}

// draw draws what a request wants, if it wants anything: what this server has may suffice. Until
// drawn is called, no other request of the project can use it.
func (q *Quota) draw(ctx context.Context, p *bounded, wants func() []store.Want) (drawn func(), err error) {
	if p.share == nil {
		return func() {}, nil
	}
	drawn = func() { <-p.share.flight }
	for wait := drawAgain; ; wait *= 2 {
		select {
		case p.share.flight <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("draw a share of the limits: %w", context.Cause(ctx))
		}
		full, err := q.drawOnce(ctx, p, wants)
		if err == nil && (!full || wait > drawAgainMost || wait > drawAgain &&
			time.Since(p.share.full) < settleInterval) {
			return drawn, nil
		}
		if full && wait*2 > drawAgainMost {
			p.share.full = time.Now()
		}
		drawn() // this server may return something during the call
		if err == nil {
			err = backoff.Sleep(ctx, wait)
		}
		if err != nil {
			return nil, fmt.Errorf("draw a share of the limits: %w", err)
		}
	}
}

// drawOnce draws once. full means that a number is used up. The caller holds the flight.
func (q *Quota) drawOnce(ctx context.Context, p *bounded, wants func() []store.Want) (full bool, err error) {
	q.mu.Lock()
	p.fill(time.Now())
	list := wants()
	for _, w := range list { // use between now and the answer must not be forgotten
		if b := p.rateOf(w.Kind); b != nil && w.Used != 0 {
			b.left += float64(w.Used)
		}
	}
	q.mu.Unlock()
	if len(list) == 0 {
		return false, nil
	}
	got, err := q.shares.Draw(ctx, q.shares.server, p.id, list...)
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for i, w := range list {
		b := p.rateOf(w.Kind)
		switch {
		case b != nil && err != nil:
			b.left -= float64(w.Used)
		case b != nil:
			b.left += float64(got[i].Got)
			b.pool, b.at, b.drawn = got[i].Left, now, now
		case err != nil:
			*p.numberOf(w.Kind) = unknown
		default:
			*p.numberOf(w.Kind) = got[i].Got
			if w.Need > 0 {
				*p.drawnForOf(w.Kind) = now
			}
			full = full || got[i].Got < w.Used+w.Need && w.Used+w.Need <= w.Limit
		}
	}
	return full, err
}

func (p *bounded) rateOf(k store.ShareKind) *bucket {
	switch k {
	case store.ShareRequests:
		return &p.requests
	case store.ShareWrites:
		return &p.writes
	case store.ShareTokens:
		return &p.tokens
	}
	return nil
}

func (p *bounded) numberOf(k store.ShareKind) *int64 {
	if k == store.ShareContainers {
		return &p.share.containers
	}
	return &p.share.responses
}

func (p *bounded) drawnForOf(k store.ShareKind) *time.Time {
	if k == store.ShareContainers {
		return &p.share.drawnFor.containers
	}
	return &p.share.drawnFor.responses
}

// wantsLocked returns what a response wants. Quota.mu is held.
func (p *bounded) wantsLocked(tokens int64) (wants []store.Want) {
	if p.requests.spent(1) || p.tokens.spent(tokens) {
		return nil
	}
	wants = wantNumber(wants, store.ShareResponses, p.limits.Responses, p.responses, p.share.responses)
	wants = p.wantRate(wants, &p.requests, store.ShareRequests, p.limits.RequestsPerMinute, 1)
	return p.wantRate(wants, &p.tokens, store.ShareTokens, p.limits.TokensPerMinute, tokens)
}

// spare returns how much more than it uses a server may have of a number.
func spare(limit int64) int64 { return limit / sharesPerLimit }

// wantNumber appends a want for one more, if the server has not enough.
func wantNumber(wants []store.Want, kind store.ShareKind, limit *int64, used, has int64) []store.Want {
	n, limited := bound(limit)
	if !limited || used < has {
		return wants
	}
	return append(wants, store.Want{Kind: kind, Limit: n, Used: used, Need: 1, Ask: 1 + spare(n)})
}

// wantRate appends a want for n, if the server has not enough.
func (p *bounded) wantRate(wants []store.Want, b *bucket, kind store.ShareKind, limit *int64, n int64) []store.Want {
	size, limited := bound(limit)
	b.fill(size, time.Now())
	if !limited || float64(n) <= b.left {
		return wants
	}
	var debt int64
	if b.left < 0 {
		debt = int64(math.Ceil(-b.left))
	}
	need := n - int64(max(0, math.Floor(b.left)))
	return append(wants, store.Want{Kind: kind, Limit: size, Used: debt, Need: need, Ask: need + size*drawSeconds/60})
}

// settleLocked starts settle if the server's share does not fit its use. With idle, it also returns spare numbers
// that no request has drawn for settleInterval. q.mu is held.
func (q *Quota) settleLocked(p *bounded, idle bool) {
	if p.share == nil || p.share.settling || q.shares.ctx.Err() != nil {
		return
	}
	if known := !p.read.IsZero(); known && len(p.surplusLocked(q.shares, idle)) == 0 {
		return
	}
	p.share.settling = true
	go q.settle(p, idle)
}

// settle reports what the server uses of a project's limits, and returns what it does not use.
func (q *Quota) settle(p *bounded, idle bool) {
	ctx, cancel := context.WithTimeout(q.shares.ctx, 10*time.Second)
	defer cancel()
	_, err := q.project(ctx, p.id) // its limits
	drawn := func() {}
	if err == nil {
		drawn, err = q.draw(ctx, p, func() []store.Want {
			p.share.settling = false // what changes from now on is not seen
			return p.surplusLocked(q.shares, idle)
		})
	}
	if err == nil {
		drawn()
		return
	}
	q.mu.Lock()
	p.share.settling = false // the next round tries again
	q.mu.Unlock()
	if ctx.Err() == nil {
		q.shares.log.Warn("failed to settle a project's share of its limits; will retry", "project", p.id, "err", err)
	}
}

// surplusLocked returns the differences between what the server has and what it uses. q.mu is held.
func (p *bounded) surplusLocked(s *shares, idle bool) (wants []store.Want) {
	number := func(kind store.ShareKind, limit *int64, use func() int64, has int64) {
		n, limited := bound(limit)
		if !limited && has == 0 {
			return
		}
		var used int64 // without a limit, the server has nothing of it
		if limited {
			used = use()
		}
		kept := 2 * spare(n) // so that few ends of requests write to the store
		if idle && time.Since(*p.drawnForOf(kind)) >= settleInterval {
			kept = 0
		}
		if has < used || has > used+kept {
			wants = append(wants, store.Want{Kind: kind, Limit: n, Used: used})
		}
	}
	number(store.ShareResponses, p.limits.Responses, func() int64 { return p.responses }, p.share.responses)
	number(store.ShareContainers, p.limits.Containers, func() int64 {
		return int64(s.running(p.id))
	}, p.share.containers)
	rate := func(b *bucket, kind store.ShareKind, limit *int64) {
		size, limited := bound(limit)
		if !limited {
			b.left = 0
			return
		}
		unused := b.left >= 1 && (time.Since(b.drawn) >= settleInterval || b.left > float64(size*drawSeconds/60))
		if unused || b.left <= -1 {
			wants = append(wants, store.Want{Kind: kind, Limit: size, Used: -int64(b.left)})
		}
	}
	rate(&p.requests, store.ShareRequests, p.limits.RequestsPerMinute)
	rate(&p.writes, store.ShareWrites, p.limits.RequestsPerMinute)
	rate(&p.tokens, store.ShareTokens, p.limits.TokensPerMinute)
	return wants
}

// AdmitContainer calls register, which registers a container of a project unless this server has
// most already. It returns an error for the client if the servers together have as many as the
// project may have.
func (q *Quota) AdmitContainer(ctx context.Context, id berth.ProjectID, register func(most int) error) error {
	p, err := q.project(ctx, id)
	if err != nil {
		return err
	}
	running := func() int64 { return int64(q.shares.running(id)) }
	drawn, err := q.draw(ctx, p, func() []store.Want {
		return wantNumber(nil, store.ShareContainers, p.limits.Containers, running(), p.share.containers)
	})
	if err != nil {
		return err
	}
	defer drawn()
	q.mu.Lock()
	n, limited := bound(p.limits.Containers)
	most := p.share.containers
	q.mu.Unlock()
	if !limited {
		return register(-1)
	}
	if running() >= most {
		return &berth.Error{Code: berth.CodeRateLimited, Type: "requests", RetryAfter: 10 * time.Second,
			Message: fmt.Sprintf(
				"Rate limit reached for project %s on containers: Limit %d, Used %d, Requested 1. Delete one, or wait until one expires.",
				id, n, max(n, running()))}
	}
	return register(int(min(most, math.MaxInt32)))
}

// ContainersChanged reports that a container of a project has started or ended on this server. It
// does not block.
func (q *Quota) ContainersChanged(id berth.ProjectID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.known[id]
	if p == nil {
		p = q.addLocked(id)
	}
	q.settleLocked(p, false)
}
