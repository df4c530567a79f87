package container

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/berth-run/berth"
)

// pools are the pools of a service.
type pools struct {
	opts    *Options
	work    *workers
	index   *index
	leases  *leases
	deaths  *deaths
	starter *starter

	all    []*pool
	claims atomic.Int64 // number of calls of claim
}

// newPools returns the pools of a service. No two may have the same template and memory limit.
func newPools(opts *Options, work *workers, x *index, ls *leases, d *deaths, st *starter) (*pools, error) {
	ps := &pools{opts: opts, work: work, index: x, leases: ls, deaths: d, starter: st}
	for _, o := range opts.Pools {
		o.MemoryLimit = cmp.Or(o.MemoryLimit, defaultMemory)
		o.Most = max(o.Most, o.Size)
		if o.Size < 0 || berth.MemoryLimits[o.MemoryLimit] == 0 {
			return nil, fmt.Errorf("container: invalid pool of %d sandboxes with memory limit %q", o.Size,
				o.MemoryLimit)
		}
		if slices.ContainsFunc(ps.all, func(p *pool) bool {
			return p.Template == o.Template && p.MemoryLimit == o.MemoryLimit
		}) {
			return nil, fmt.Errorf("container: two pools have template %q and memory limit %s", o.Template,
				o.MemoryLimit)
		}
		if o.Size > 0 {
			ps.all = append(ps.all, newPool(o, ps))
		}
	}
	return ps, nil
}

// claim returns a ready sandbox of a template and memory limit, or nil. The caller owns
// the sandbox.
func (ps *pools) claim(template, memory string) *instance {
	ps.claims.Add(1)
	var missed *pool
	for _, p := range ps.all {
		p.notify()
		if p.MemoryLimit != memory {
			continue
		}
		if s := p.pop(template); s != nil {
			return s
		}
		if missed == nil && p.serves(template) {
			missed = p
		}
	}
	if missed != nil {
		missed.missed()
	}
	return nil
}

// unclaim returns a sandbox to its pool, if it has one. The sandbox must be unused.
func (ps *pools) unclaim(s *instance) {
	p := s.pool
	if p == nil {
		return
	}
	body := p.body(s.id, s.body.Berth.Template)
	s.assign("", &body)
	s.requestID = ""
	s.network.Store(nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addLocked(s)
	p.stats.Hits--
	p.demand.returned()
}

// discard removes a sandbox that belongs to no container. The sweeper retries failures.
func (ps *pools) discard(s *instance) {
	ps.disown(s)
	ps.deaths.removeSoon(s)
}

// disown ends a sandbox that belongs to no container, and registers it so that the
// sweeper removes it.
func (ps *pools) disown(s *instance) {
	s.mu.Lock()
	s.death.reason, s.death.recorded = reasonHost, true // it has no row in the store
	s.mu.Unlock()
	s.end(errDiscarded)
	ps.index.registerDead(s)
}

// errDiscarded is the end of discarded sandboxes.
var errDiscarded = errors.New("discarded from its pool")
