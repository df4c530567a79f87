package container

import (
	"context"
	"sync"

	"github.com/berth-run/berth"
)

// A reservation is a container whose id a response has, and that nothing has used yet. Its
// instance is registered and counts towards limits, but it is not in the store and has no
// sandbox, unless a pool gave one. The first use creates it. If no response needs it any more
// and none has used it, it is dropped. Clients do not see it before its first use.
type reservation struct {
	plan   *plan
	create func(context.Context) error // saves the container and starts it

	mu       sync.Mutex
	over     bool // it was created or dropped
	promises int  // responses that have the id
}

// created reports whether the container was created, or dropped.
func (r *reservation) created() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// promise records that another response has the id of the container. The caller must have
// acquired the instance.
func (s *instance) promise() {
	if s.reserved == nil {
		return
	}
	s.reserved.mu.Lock()
	defer s.reserved.mu.Unlock()
	s.reserved.promises++
}

// create creates a reserved container. It does nothing for others. The caller must have
// acquired the instance.
func (ls *leases) create(ctx context.Context, s *instance) error {
	r := s.reserved
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return nil
	}
	now := ls.opts.clock.Now()
	r.plan.requestedAt, r.plan.body.CreatedAt, r.plan.body.LastActiveAt = now, now.Unix(), now.Unix()
	if err := r.create(ctx); err != nil {
		return err
	}
	r.over = true
	return nil
}

// drop drops a reserved container whose creation failed, unless a response still needs it.
func (ls *leases) drop(s *instance) {
	if s.reserved == nil {
		return
	}
	s.reserved.mu.Lock()
	defer s.reserved.mu.Unlock()
	ls.dropLocked(s)
}

// dropLocked drops a reserved container that nothing uses or needs. s.reserved.mu is held. A
// sandbox of a pool does not return to it: a user may have found the instance just now.
func (ls *leases) dropLocked(s *instance) {
	r := s.reserved
	if r.over || r.promises > 0 || !s.markDead(reasonDeleted, func() bool { return s.usage.holds == 0 }) {
		return
	}
	r.over = true
	s.mu.Lock()
	s.death.recorded = true // it has no row in the store
	s.mu.Unlock()
	s.end(berth.NotFound("Container", s.id))
	if s.pool == nil {
		ls.index.unregister(s)
		return
	}
	s.pool.count(-1, 0)
	ls.deaths.removeSoon(s)
}
