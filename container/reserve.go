package container

import (
	"context"

	"github.com/berth-run/berth"
)

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

// reservations create the containers that responses have reserved, or drop them.
type reservations struct {
	opts   *Options
	index  *index
	deaths *deaths
}

// create creates a reserved container. It does nothing for others. The caller must have
// acquired the instance.
func (rs *reservations) create(ctx context.Context, s *instance) error {
	r := s.reserved
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return nil
	}
	if err := r.create(ctx, rs.opts.clock.Now()); err != nil {
		return err
	}
	r.over = true
	return nil
}

// drop drops a reserved container whose creation failed, unless a response still needs it.
func (rs *reservations) drop(s *instance) {
	if s.reserved == nil {
		return
	}
	s.reserved.mu.Lock()
	defer s.reserved.mu.Unlock()
	rs.dropLocked(s)
}

// dropLocked drops a reserved container that nothing uses or needs. s.reserved.mu is held. A
// sandbox of a pool does not return to it: a user may have found the instance just now.
func (rs *reservations) dropLocked(s *instance) {
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
		rs.index.unregister(s)
		return
	}
	s.pool.unhit()
	rs.deaths.removeSoon(s)
}
