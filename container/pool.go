package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// A sandbox is added to a pool when none has been claimed for poolCalm, so that
// starting it does not slow down what was claimed, or after poolHurry: under load
// a pool is of use as well.
const (
	poolCalm  = 100 * time.Millisecond
	poolHurry = time.Second
)

// After a failure a pool waits before it tries again, longer from time to time.
const (
	poolRetryFirst = time.Second
	poolRetryMost  = time.Minute
)

// errDiscarded ends sandboxes of pools that no container will have.
var errDiscarded = errors.New("discarded from its pool")

// PoolOptions say what a pool holds.
type PoolOptions struct {
	Template    string // a name or a digest; empty is the default one
	MemoryLimit string // default 1g
	Size        int    // how many sandboxes
}

// A pool keeps sandboxes ready: started from one template with one memory limit, and
// their guests have answered. What makes one a container's own is bound when it is
// claimed.
//
// A ready sandbox has the id that its container will have. As long as no container
// has it, the sandbox is nobody's: what a crash leaves of the pool, Start destroys.
type pool struct {
	PoolOptions
	group *pools
	wake  chan struct{} // has room for one: there may be something to do

	mu     sync.Mutex
	ready  []*instance // the oldest first
	digest string      // of the template, when it was last looked at
	looked time.Time   // when that is, by the keeper's clock
	stats  PoolStats

	reported PoolStats // the figures that were last logged
}

// pools are the pools of a service.
type pools struct {
	opts    *Options
	work    *workers
	index   *index
	leases  *leases
	deaths  *deaths
	starter *starter

	all     []*pool
	claimed atomic.Int64 // when claim was last called, in Unix nanoseconds
}

// newPools returns the pools of a service, which must differ.
func newPools(opts *Options, work *workers, x *index, ls *leases, d *deaths, st *starter) (*pools, error) {
	ps := &pools{opts: opts, work: work, index: x, leases: ls, deaths: d, starter: st}
	for _, o := range opts.Pools {
		o.MemoryLimit = cmp.Or(o.MemoryLimit, defaultMemory)
		if o.Size < 0 || berth.MemoryLimits[o.MemoryLimit] == 0 {
			return nil, fmt.Errorf("sandbox: there can be no pool of %d sandboxes of %q", o.Size, o.MemoryLimit)
		}
		if slices.ContainsFunc(ps.all, func(p *pool) bool { return p.Template == o.Template && p.MemoryLimit == o.MemoryLimit }) {
			return nil, fmt.Errorf("sandbox: two pools hold sandboxes of %q with %s", o.Template, o.MemoryLimit)
		}
		if o.Size > 0 {
			ps.all = append(ps.all, &pool{PoolOptions: o, group: ps, wake: make(chan struct{}, 1)})
		}
	}
	return ps, nil
}

// PoolStats tell how well a pool serves.
type PoolStats struct {
	PoolOptions
	Ready  int   // how many sandboxes it holds
	Hits   int64 // containers that were given one
	Misses int64 // containers that could have had one and were started cold
}

// Pools returns the figures of the pools since the service was made.
func (k *Service) Pools() []PoolStats {
	all := make([]PoolStats, len(k.pools.all))
	for i, p := range k.pools.all {
		all[i] = p.figures()
	}
	return all
}

func (p *pool) figures() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := p.stats
	stats.PoolOptions, stats.Ready = p.PoolOptions, len(p.ready)
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
		p.group.opts.Log.Info("pool", "template", p.Template, "memory_limit", p.MemoryLimit, "size", p.Size, "ready", stats.Ready, "hits", stats.Hits, "misses", stats.Misses)
	}
}

// claim returns a ready sandbox for a container on a template, which the caller
// owns from now on, or nil.
func (ps *pools) claim(template, memory string) *instance {
	ps.claimed.Store(time.Now().UnixNano())
	var missed *pool
	for _, p := range ps.all {
		p.ring()
		if p.MemoryLimit != memory {
			continue
		}
		if s := p.take(template); s != nil {
			return s
		}
		if missed == nil && p.serves(template) {
			missed = p
		}
	}
	if missed != nil {
		missed.count(0, 1)
	}
	return nil
}

// take takes a sandbox of a template out of the pool, if it holds one.
func (p *pool) take(template string) *instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.ready, func(s *instance) bool { return s.body.Berth.Template == template })
	if i < 0 {
		return nil
	}
	s := p.ready[i]
	p.ready = slices.Delete(p.ready, i, i+1)
	p.stats.Hits++
	return s
}

// serves reports whether the pool is to hold sandboxes of a template.
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

func (p *pool) count(hits, misses int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Hits += hits
	p.stats.Misses += misses
}

// unclaim takes back a sandbox that was claimed, if it was, and has not been used.
func (ps *pools) unclaim(s *instance) {
	p := s.pool
	if p == nil {
		return
	}
	body := p.body(s.id, s.body.Berth.Template)
	s.assign("", &body)
	s.requestID, s.network = "", nil
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = append(p.ready, s)
	p.stats.Hits--
}

// remove takes a sandbox out of the pool. It reports false if it was claimed.
func (p *pool) remove(s *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.ready, s)
	if i < 0 {
		return false
	}
	p.ready = slices.Delete(p.ready, i, i+1)
	p.ring()
	return true
}

func (p *pool) ring() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// body is what is known of a container that nobody has asked for yet.
func (p *pool) body(id berth.ContainerID, template string) berth.Container {
	return berth.Container{ID: id, MemoryLimit: p.MemoryLimit, Berth: berth.ContainerBerth{Template: template}}
}

// run keeps the pool full until the keeper closes, then destroys what is in it.
func (p *pool) run() {
	defer p.drain()
	retry := poolRetryFirst
	for {
		full, err := p.step()
		wait := time.Duration(0)
		switch {
		case p.group.work.life.Err() != nil:
			return
		case err != nil:
			p.group.opts.Log.Warn("a pool has no further sandbox; this will be tried again", "template", p.Template, "memory_limit", p.MemoryLimit, "err", err, "in", retry)
			wait, retry = retry, min(2*retry, poolRetryMost)
		case full:
			retry = poolRetryFirst
			select {
			case <-p.wake:
			case <-p.group.work.closing:
				return
			}
		}
		if !p.pause(wait) {
			return
		}
	}
}

// pause waits, and then until it is calm. It reports false if the keeper closes.
func (p *pool) pause(wait time.Duration) bool {
	for begin := time.Now(); ; {
		select {
		case <-time.After(wait):
		case <-p.group.work.closing:
			return false
		}
		wait = poolCalm - time.Since(time.Unix(0, p.group.claimed.Load()))
		if wait <= 0 || time.Since(begin) > poolHurry {
			return true
		}
	}
}

// step adds one sandbox if there is room, and removes those of a template that is
// not used any more. It reports whether nothing was to be done.
func (p *pool) step() (full bool, err error) {
	ps := p.group
	t, err := ps.opts.Template(p.Template)
	if err != nil {
		return true, nil // whoever asks for a container is told, and wakes us when there is one
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
	full = len(p.ready) >= p.Size
	p.mu.Unlock()
	for _, s := range old {
		ps.discard(s)
	}
	if full {
		return true, nil
	}
	if err := ps.opts.Room(); err != nil {
		return false, err
	}
	body := p.body(berth.ContainerID(berth.NewID(berth.PrefixContainer)), t.Digest)
	s := ps.leases.newInstance("", &body)
	ctx, cancel := context.WithTimeout(s.life, startTime)
	defer cancel()
	if err := ps.starter.boot(ctx, s, ps.starter.spec(&body, t.Template), nil); err != nil {
		ps.discard(s)
		return false, err
	}
	s.warm(ctx)
	s.pool = p
	p.mu.Lock()
	p.ready = append(p.ready, s)
	p.mu.Unlock()
	return false, nil
}

// warm runs a shell that does nothing: the first one is slow, because all that it
// needs is read for the first time. It leaves nothing behind.
func (s *instance) warm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, guestTime)
	defer cancel()
	p, err := s.client.Start(ctx, guest.ProcessRequest{Cmd: "/bin/bash", Args: []string{"-c", ":"}})
	if err != nil {
		return // none in this template
	}
	for ev, err := range p.Events() {
		if err != nil || ev.Ended {
			return
		}
	}
}

// sweep removes what has died in the pool, and has it looked now and then whether
// its template is another.
func (p *pool) sweep() {
	now := p.group.opts.now()
	p.mu.Lock()
	ready := slices.Clone(p.ready)
	if now.Sub(p.looked) >= checkEvery {
		p.looked = now
		p.ring()
	}
	p.mu.Unlock()
	var g errgroup.Group
	for _, s := range ready {
		s.mu.Lock()
		due := now.Sub(s.health.checked) >= checkEvery
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

// check removes a sandbox whose guest does not answer any more, unless it is this process
// that cannot ask: one that the driver does not know either is left where it is.
func (p *pool) check(s *instance) {
	ctx, cancel := context.WithTimeout(s.life, statsTime)
	defer cancel()
	if s.answers(ctx) || s.life.Err() != nil {
		return
	}
	if _, err := p.group.deaths.reason(ctx, s); err != nil || !p.remove(s) {
		return
	}
	p.group.opts.Log.Warn("a sandbox of the pool did not answer any more", "sandbox", s.id)
	p.group.discard(s)
}

// drain destroys what is in the pool.
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
				p.group.opts.Log.Warn("a sandbox of the pool is left to the next start", "sandbox", s.id, "err", err)
			}
			return nil
		})
	}
	_ = g.Wait()
}

// discard removes a sandbox that is no container's. What fails of that is tried
// again, as with containers.
func (ps *pools) discard(s *instance) {
	ps.disown(s)
	ps.deaths.removeSoon(s)
}

// disown ends a sandbox that is no container's and takes it into the books, so that
// it is removed.
func (ps *pools) disown(s *instance) {
	s.mu.Lock()
	s.death.reason, s.death.recorded = reasonHost, true // there is no row to say so
	s.mu.Unlock()
	s.end(errDiscarded)
	ps.index.registerDead(s)
}
