package container

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/trace"

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

// reserve reserves a container that the first use creates.
func (svc *Service) reserve(ctx context.Context, caller berth.Caller, pl *plan, claims bool) error {
	if err := svc.opts.Disk.Room(); err != nil {
		return err
	}
	most, err := svc.opts.Quota(ctx, caller.Project)
	if err != nil {
		return err
	}
	reserved := &reservation{plan: pl, promises: 1}
	s, err := svc.register(ctx, caller, pl, registration{most: most, cold: !claims, reserved: reserved})
	if err != nil {
		return err
	}
	s.touch(svc.opts.clock.Now())
	return nil
}

// Reserve reserves a container for a response that a former process left, under the id that the
// response has. It does nothing if the container exists. Release must follow.
func (svc *Service) Reserve(ctx context.Context, caller berth.Caller, id berth.ContainerID) error {
	p := caller.Project
	if svc.index.lookup(p, id) != nil {
		if err := svc.leases.reserve(ctx, p, id); err != nil && ctx.Err() != nil {
			return err
		}
		return nil // one that has ended is reported by its use
	}
	_, err := svc.opts.container(ctx, p, id)
	if berth.ErrorCode(err) != berth.CodeNotFound {
		return err
	}
	pl, err := svc.planner.plan(ctx, p, CreateRequest{Name: autoName})
	if err != nil {
		return err
	}
	pl.body.ID = id
	return svc.reserve(ctx, caller, pl, false)
}

// Begin creates a reserved container before its first use. It returns while the sandbox is
// still being started, and does nothing for other containers.
func (svc *Service) Begin(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	s := svc.index.lookup(p, id)
	if s == nil {
		return nil
	}
	if err := s.acquire(ctx); err != nil {
		return err
	}
	err := svc.leases.create(ctx, s)
	s.release(svc.opts.clock.Now())
	if err != nil {
		svc.leases.drop(s)
	}
	return err
}

// Release ends a response's need for a container that Provide or Reserve returned to it. A
// reserved container that was not used is dropped with the last response that has its id.
func (svc *Service) Release(p berth.ProjectID, id berth.ContainerID) {
	s := svc.index.lookup(p, id)
	if s == nil || s.reserved == nil {
		return
	}
	s.reserved.mu.Lock()
	defer s.reserved.mu.Unlock()
	s.reserved.promises--
	svc.leases.dropLocked(s)
}

// TemplateOf returns the digest of a container's template. It is no use of the container.
func (svc *Service) TemplateOf(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (string, error) {
	if s := svc.index.lookup(p, id); s != nil {
		return s.body.Berth.Template, nil
	}
	rec, err := svc.opts.container(ctx, p, id)
	if err != nil {
		return "", err
	}
	return rec.Body.Berth.Template, nil
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

// save saves a registered container and starts its sandbox.
func (svc *Service) save(ctx context.Context, s *instance, pl *plan, caller berth.Caller) error {
	pl.cause = trace.SpanFromContext(ctx)
	ready := svc.starter.ready(ctx, s, pl)
	if pl.body.Berth.Starting = !ready; ready {
		pl.body.Berth.Start = pl.started(StartPool, svc.opts.clock.Now())
	}
	if err := svc.saveNew(ctx, s, pl, caller.Key); err != nil {
		// It may have been saved nevertheless, but its id is not known to the client.
		return errors.Join(err, ignoreNotFound(svc.opts.Store.DeleteContainer(context.WithoutCancel(ctx), s.project,
			s.id)))
	}
	svc.trail.recordCreated(s, caller.Key)
	if ready {
		svc.opts.Observer.Started(StartPool, svc.opts.clock.Since(pl.requestedAt))
		traceStart(s, pl, StartPool)
		close(s.started)
		return nil
	}
	if !svc.work.spawn(func() { svc.starter.launch(s, pl) }) {
		svc.deaths.end(s, reasonDeleted, errStopping, nil, nil) // the client does not get its id
		return errStopping
	}
	return nil
}
