package sandbox

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/guest"
)

// poolMemory is the memory limit of the sandboxes in the pool: a container's
// default.
const poolMemory = "1g"

// A sandbox is added to the pool when none has been claimed for poolCalm, so that
// starting it does not slow down what was claimed, or after poolHurry: under load
// the pool is of use as well.
const (
	poolCalm  = 100 * time.Millisecond
	poolHurry = time.Second
)

// After a failure the pool waits before it tries again, longer from time to time.
const (
	poolRetryFirst = time.Second
	poolRetryMost  = time.Minute
)

// errDiscarded ends sandboxes of the pool that no container will have.
var errDiscarded = errors.New("discarded from the pool")

// A pool keeps sandboxes ready: started from the template that new containers have,
// and their guests have answered. What makes one a container's own is bound when it
// is claimed.
//
// A ready sandbox has the id that its container will have. As long as no container
// has it, the sandbox is nobody's: what a crash leaves of the pool, Start destroys.
type pool struct {
	keeper *Keeper
	size   int           // 0 is no pool
	wake   chan struct{} // has room for one: there may be something to do

	mu      sync.Mutex
	ready   []*sandbox // the oldest first
	claimed time.Time  // when one was, the last time
	stats   PoolStats

	reported PoolStats // the figures that were last logged
}

// PoolStats tell how well the pool serves.
type PoolStats struct {
	Template    string // its name in the configuration
	MemoryLimit string

	Size   int   // how many sandboxes it is to hold
	Ready  int   // how many it holds
	Hits   int64 // containers that were given one
	Misses int64 // containers that could have had one and were started cold
}

// Pool returns the figures of the pool since the keeper was made.
func (k *Keeper) Pool() PoolStats {
	p := &k.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := p.stats
	stats.Size, stats.Ready = p.size, len(p.ready)
	return stats
}

// Pools returns the figures of all pools.
func (k *Keeper) Pools() []PoolStats {
	stats := k.Pool()
	stats.Template, stats.MemoryLimit = "default", poolMemory
	return []PoolStats{stats}
}

// report logs the figures of the pool if they have changed.
func (p *pool) report() {
	stats := p.keeper.Pool()
	p.mu.Lock()
	changed := stats.Hits != p.reported.Hits || stats.Misses != p.reported.Misses
	p.reported = stats
	p.mu.Unlock()
	if changed {
		p.keeper.opts.Log.Info("pool", "size", stats.Size, "ready", stats.Ready, "hits", stats.Hits, "misses", stats.Misses)
	}
}

// claim returns a ready sandbox for a container on a template, which the caller
// owns from now on, or nil.
func (p *pool) claim(template, memory string) *sandbox {
	if p.size == 0 || memory != poolMemory {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claimed = time.Now()
	p.ring()
	i := slices.IndexFunc(p.ready, func(s *sandbox) bool { return s.body.Berth.Template == template })
	if i < 0 {
		p.stats.Misses++
		return nil
	}
	s := p.ready[i]
	p.ready = slices.Delete(p.ready, i, i+1)
	p.stats.Hits++
	return s
}

// unclaim takes back a sandbox that was claimed, if it was, and has not been used.
func (p *pool) unclaim(s *sandbox) {
	if !s.pooled {
		return
	}
	body := poolBody(s.id, s.body.Berth.Template)
	s.assign("", &body)
	s.asked, s.network = "", nil
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = append(p.ready, s)
	p.stats.Hits--
}

// missed counts a sandbox that was claimed and turned out to be dead.
func (p *pool) missed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Hits--
	p.stats.Misses++
}

// remove takes a sandbox out of the pool. It reports false if it was claimed.
func (p *pool) remove(s *sandbox) bool {
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

// poolBody is what is known of a container that nobody has asked for yet.
func poolBody(id berth.ContainerID, template string) berth.Container {
	return berth.Container{ID: id, MemoryLimit: poolMemory, Berth: berth.ContainerBerth{Template: template}}
}

// run keeps the pool full until the keeper closes, then destroys what is in it.
func (p *pool) run() {
	defer p.drain()
	retry := poolRetryFirst
	for {
		full, err := p.step()
		wait := time.Duration(0)
		switch {
		case p.keeper.life.Err() != nil:
			return
		case err != nil:
			p.keeper.opts.Log.Warn("the pool has no further sandbox; this will be tried again", "err", err, "in", retry)
			wait, retry = retry, min(2*retry, poolRetryMost)
		case full:
			retry = poolRetryFirst
			select {
			case <-p.wake:
			case <-p.keeper.closing:
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
		case <-p.keeper.closing:
			return false
		}
		p.mu.Lock()
		wait = poolCalm - time.Since(p.claimed)
		p.mu.Unlock()
		if wait <= 0 || time.Since(begin) > poolHurry {
			return true
		}
	}
}

// step adds one sandbox if there is room, and removes those of a template that is
// not used any more. It reports whether nothing was to be done.
func (p *pool) step() (full bool, err error) {
	k := p.keeper
	t, err := k.opts.Template("")
	if err != nil {
		return true, nil // whoever asks for a container is told, and wakes us when there is one
	}
	p.mu.Lock()
	var old []*sandbox
	p.ready = slices.DeleteFunc(p.ready, func(s *sandbox) bool {
		stale := s.body.Berth.Template != t.Digest
		if stale {
			old = append(old, s)
		}
		return stale
	})
	full = len(p.ready) >= p.size
	p.mu.Unlock()
	for _, s := range old {
		k.discard(s)
	}
	if full {
		return true, nil
	}
	body := poolBody(berth.ContainerID(berth.NewID(berth.PrefixContainer)), t.Digest)
	s := k.newSandbox("", &body)
	ctx, cancel := context.WithTimeout(s.life, startTime)
	defer cancel()
	if err := k.boot(ctx, s, k.spec(&body, t.Rootfs), nil); err != nil {
		k.discard(s)
		return false, err
	}
	s.warm(ctx)
	s.pooled = true
	p.mu.Lock()
	p.ready = append(p.ready, s)
	p.mu.Unlock()
	return false, nil
}

// warm runs a shell that does nothing: the first one is slow, because all that it
// needs is read for the first time. It leaves nothing behind.
func (s *sandbox) warm(ctx context.Context) {
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

// sweep removes what has died in the pool.
func (p *pool) sweep() {
	now := p.keeper.now()
	p.mu.Lock()
	ready := slices.Clone(p.ready)
	p.mu.Unlock()
	var g errgroup.Group
	for _, s := range ready {
		s.mu.Lock()
		due := now.Sub(s.checked) >= checkEvery
		if due {
			s.checked = now
		}
		s.mu.Unlock()
		if due {
			g.Go(func() error { p.check(s); return nil })
		}
	}
	_ = g.Wait()
}

// check removes a sandbox whose guest does not answer any more.
func (p *pool) check(s *sandbox) {
	ctx, cancel := context.WithTimeout(s.life, statsTime)
	defer cancel()
	if s.answers(ctx) || s.life.Err() != nil || !p.remove(s) {
		return
	}
	p.keeper.opts.Log.Warn("a sandbox of the pool did not answer any more", "sandbox", s.id)
	p.keeper.discard(s)
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
			p.keeper.disown(s)
			if err := p.keeper.inter(s); err != nil {
				p.keeper.opts.Log.Warn("a sandbox of the pool is left to the next start", "sandbox", s.id, "err", err)
			}
			return nil
		})
	}
	_ = g.Wait()
}

// discard removes a sandbox that is no container's. What fails of that is tried
// again, as with containers.
func (k *Keeper) discard(s *sandbox) {
	k.disown(s)
	k.interSoon(s)
}

// disown ends a sandbox that is no container's and takes it into the books, so that
// it is removed.
func (k *Keeper) disown(s *sandbox) {
	s.mu.Lock()
	s.reason, s.recorded = reasonHost, true // there is no row to say so
	s.mu.Unlock()
	s.end(errDiscarded)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sandboxes[s.id] = s
}
