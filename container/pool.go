package container

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
	"github.com/berth-run/berth/internal/backoff"
)

// A pool adds a sandbox when no claim was made for poolIdle, so that the start does not slow
// down claimed ones, or after poolMaxWait: a pool must fill under load too.
const (
	poolIdle    = 100 * time.Millisecond
	poolMaxWait = time.Second
)

// A pool retries a failed start with back-off.
const (
	poolRetryFirst = time.Second
	poolRetryMax   = time.Minute
)

// A pool holds sandboxes that are ready: started from one template with one memory limit, with
// guests that have answered. Identity, environment, files and network are bound when a sandbox
// is claimed.
//
// A ready sandbox has the id of its future container. Until the container is saved, the sandbox
// belongs to no container, and after a crash Start destroys it.
type pool struct {
	PoolOptions
	group *pools
	wake  chan struct{} // buffered: signals run to check the pool

	mu              sync.Mutex
	ready           []*instance // oldest first
	changed         sync.Cond   // of mu: ready has changed
	digest          string      // of the template when it was last resolved
	templateChecked time.Time   // when the template was last resolved, by opts.clock
	stats           PoolStats
	demand          demand

	reported PoolStats // the figures last logged
	claims   int64     // that were not recent when run last waited; used by run alone
}

func newPool(o PoolOptions, group *pools) *pool {
	p := &pool{PoolOptions: o, group: group, wake: make(chan struct{}, 1)}
	p.changed.L = &p.mu
	return p
}

// addLocked adds a sandbox that is ready. p.mu is held.
func (p *pool) addLocked(s *instance) {
	p.ready = append(p.ready, s)
	p.changed.Broadcast()
}

func (p *pool) figures() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := p.stats
	stats.PoolOptions, stats.Ready, stats.Target = p.PoolOptions, len(p.ready), p.wantLocked(p.group.opts.clock.Now())
	return stats
}

// report logs the figures of the pool if they have changed.
func (p *pool) report() {
	stats := p.figures()
	p.mu.Lock()
	changed := stats.Hits != p.reported.Hits || stats.Misses != p.reported.Misses
	p.reported = stats
	p.mu.Unlock()
	if changed {
		p.group.opts.Log.Info("pool", "template", p.Template, "memory_limit", p.MemoryLimit, "size", p.Size, "target",
			stats.Target, "ready", stats.Ready, "hits", stats.Hits, "misses", stats.Misses)
	}
}

// pop removes a sandbox of a template from the pool and returns it, or nil if there is none.
func (p *pool) pop(template string) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.ready, func(s *instance) bool { return s.body.Berth.Template == template })
	if i < 0 {
		return nil
	}
	s := p.ready[i]
	p.ready = slices.Delete(p.ready, i, i+1)
	p.stats.Hits++
	p.demand.claimed(p.group.opts.clock.Now())
	return s
}

// serves reports whether the pool is for sandboxes of a template.
func (p *pool) serves(template string) bool {
	p.mu.Lock()
	same := p.digest == template
	p.mu.Unlock()
	if same {
		return true
	}
	t, err := p.group.opts.Template(p.Template)
	return err == nil && t.Digest == template
}

// missed counts a container that starts cold because the pool was empty.
func (p *pool) missed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Misses++
	p.demand.claimed(p.group.opts.clock.Now())
}

// spoiled counts a hit as a miss: the sandbox did not answer.
func (p *pool) spoiled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Hits--
	p.stats.Misses++
}

// unhit takes back a hit whose container was never used.
func (p *pool) unhit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Hits--
}

// remove removes a sandbox from the pool. It returns false if the sandbox was claimed.
func (p *pool) remove(s *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.ready, s)
	if i < 0 {
		return false
	}
	p.ready = slices.Delete(p.ready, i, i+1)
	p.notify()
	return true
}

func (p *pool) notify() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// body returns the part of a future container that is known before its request.
func (p *pool) body(id berth.ContainerID, template string) berth.Container {
	return berth.Container{ID: id, MemoryLimit: p.MemoryLimit, Berth: berth.ContainerBerth{Template: template}}
}

// run fills the pool until the service closes, then destroys the sandboxes in it.
func (p *pool) run() {
	defer p.drain()
	retries := backoff.Delays{First: poolRetryFirst, Max: poolRetryMax}
	for {
		full, err := p.fill()
		wait := time.Duration(0)
		switch {
		case p.group.work.life.Err() != nil:
			return
		case err != nil:
			wait = retries.Next()
			p.group.opts.Log.Warn("failed to add a sandbox to a pool; will retry", "template", p.Template, "memory_limit",
				p.MemoryLimit, "err", err, "in", wait)
		case full:
			retries.Reset()
			select {
			case <-p.wake:
			case <-p.group.work.closing:
				return
			}
		}
		if !p.waitIdle(wait) {
			return
		}
	}
}

// waitIdle waits for the duration wait, and then until no claim is recent. It returns false if
// the service is closing.
func (p *pool) waitIdle(wait time.Duration) bool {
	for waited := time.Duration(0); ; waited += poolIdle {
		select {
		case <-p.group.opts.clock.After(wait):
		case <-p.group.work.closing:
			return false
		}
		claims := p.group.claims.Load()
		if claims == p.claims || waited >= poolMaxWait {
			return true
		}
		p.claims, wait = claims, poolIdle
	}
}

// fill adds one sandbox if the pool wants more, and removes sandboxes of a former template and
// surplus ones. It reports whether the pool is full.
func (p *pool) fill() (full bool, err error) {
	ps := p.group
	t, err := ps.opts.Template(p.Template)
	if err != nil {
		return true, nil // clients get the error when they create a container; claim wakes the pool
	}
	p.mu.Lock()
	p.digest = t.Digest
	var old []*instance
	p.ready = slices.DeleteFunc(p.ready, func(s *instance) bool {
		stale := s.body.Berth.Template != t.Digest
		if stale {
			old = append(old, s)
		}
		return stale
	})
	want := p.wantLocked(ps.opts.clock.Now())
	if full = len(p.ready) >= want; full {
		surplus := len(p.ready) - want
		old = append(old, p.ready[:surplus]...)
		p.ready = slices.Delete(p.ready, 0, surplus)
		p.changed.Broadcast()
		p.demand.met()
	}
	p.mu.Unlock()
	for _, s := range old {
		ps.discard(s)
	}
	if full {
		return true, nil
	}
	if err := ps.opts.Disk.Room(); err != nil {
		return false, err
	}
	body := p.body(berth.ContainerID(berth.NewID(berth.PrefixContainer)), t.Digest)
	s := ps.leases.newInstance("", &body)
	ctx, cancel := p.group.opts.clock.WithTimeout(s.life, startTimeout)
	defer cancel()
	if err := ps.starter.boot(ctx, s, ps.starter.spec(&body, t.Template), nil); err != nil {
		ps.discard(s)
		return false, err
	}
	if err := s.setEnvironment(ctx, t.Env); err != nil {
		ps.discard(s)
		return false, fmt.Errorf("set the template's environment: %w", err)
	}
	s.warm(ctx)
	s.pool = p
	p.mu.Lock()
	p.demand.added()
	p.addLocked(s)
	p.mu.Unlock()
	return false, nil
}

// warm runs a shell that does nothing. The first run is slow because it reads the shell's files
// for the first time. It changes nothing in the sandbox.
func (s *instance) warm(ctx context.Context) {
	ctx, cancel := s.clock.WithTimeout(ctx, guestTimeout)
	defer cancel()
	p, err := s.client.Start(ctx, guest.ProcessRequest{Cmd: "/bin/bash", Args: []string{"-c", ":"}})
	if err != nil {
		return // the template has no bash
	}
	for ev, err := range p.Events() {
		if err != nil || ev.Ended {
			return
		}
	}
}

// sweep removes dead sandboxes from the pool, and periodically makes run resolve the
// template again.
func (p *pool) sweep() {
	now := p.group.opts.clock.Now()
	p.mu.Lock()
	ready := slices.Clone(p.ready)
	if now.Sub(p.templateChecked) >= checkInterval {
		p.templateChecked = now
		p.notify()
	}
	p.mu.Unlock()
	var g errgroup.Group
	for _, s := range ready {
		s.mu.Lock()
		due := now.Sub(s.health.checked) >= checkInterval
		if due {
			s.health.checked = now
		}
		s.mu.Unlock()
		if due {
			g.Go(func() error { p.check(s); return nil })
		}
	}
	_ = g.Wait()
}

// check removes a sandbox whose guest does not answer. If the driver cannot report its state
// either, this process may be at fault, and the sandbox stays.
func (p *pool) check(s *instance) {
	ctx, cancel := p.group.opts.clock.WithTimeout(s.life, statsTimeout)
	defer cancel()
	if s.answers(ctx) || s.life.Err() != nil {
		return
	}
	if _, err := p.group.deaths.reason(ctx, s); err != nil || !p.remove(s) {
		return
	}
	p.group.opts.Log.Warn("pooled sandbox does not answer; discarding it", "sandbox", s.id)
	p.group.discard(s)
}

// drain destroys the sandboxes in the pool.
func (p *pool) drain() {
	p.mu.Lock()
	left := p.ready
	p.ready = nil
	p.mu.Unlock()
	var g errgroup.Group
	for _, s := range left {
		g.Go(func() error {
			p.group.disown(s)
			if err := p.group.deaths.remove(s); err != nil {
				p.group.opts.Log.Warn("failed to remove a pooled sandbox; the next start removes it", "sandbox", s.id,
					"err", err)
			}
			return nil
		})
	}
	_ = g.Wait()
}

// PoolStats are the figures of a pool.
type PoolStats struct {
	PoolOptions
	Target int   // sandboxes that it is to hold now: from Size to Most
	Ready  int   // sandboxes in it now
	Hits   int64 // containers that got one of its sandboxes
	Misses int64 // containers started cold because it was empty
}
