package container

import (
	"cmp"
	"context"

	"github.com/berth-run/berth"
)

// Fork creates a container with the current files, limits, expiry, network policy and secrets
// of another one. With memory, its processes continue in both. If req.Name is empty, the fork
// has the source's name.
//
// The content is copied from one sandbox into the other and is not stored in between. Fork
// returns when the fork runs: until then its content exists only in the source, which may
// change afterwards. An interrupted fork is not repeated; it ends.
func (svc *Service) Fork(ctx context.Context, caller berth.Caller, id berth.ContainerID,
	req ForkRequest) (*berth.Container, error) {
	from, held, release, err := svc.leases.use(ctx, caller.Project, id)
	if err != nil {
		return nil, err
	}
	defer release()
	c := &contentCopy{ctx: held, from: from, memory: req.Memory}
	if c.files, err = svc.snapshots.userFiles(held, from); err != nil {
		return nil, err
	}
	pl, err := svc.planner.planFork(held, caller.Project, c, req)
	if err != nil {
		return nil, err
	}
	s, err := svc.creator.create(held, caller, pl)
	if err != nil {
		return nil, err
	}
	select {
	case <-s.started:
	case <-held.Done():
		svc.deaths.end(s, reasonDeleted, berth.NotFound("Container", s.id), nil, nil) // the client does not get its id
		<-s.started
	}
	if s.life.Err() == nil {
		pl.body.Berth.Starting = false
		return pl.body, nil
	}
	err = context.Cause(s.life)
	switch {
	case svc.work.life.Err() != nil:
		return nil, errStopping // the next server ends the fork
	case held.Err() != nil:
		err = svc.leases.explain(held, from, context.Cause(held))
	case c.failed != nil:
		err = svc.snapshots.explain(held, from, c.failed)
	}
	svc.discardFork(caller.Project, s.id)
	return nil, err
}

// discardFork deletes a fork that did not start, because the client does not get its id.
func (svc *Service) discardFork(p berth.ProjectID, id berth.ContainerID) {
	ctx, cancel := svc.opts.clock.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := svc.Delete(ctx, p, id); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
		svc.opts.Log.Warn("failed to delete a fork that did not start; will retry", "container", id, "err", err)
	}
}

// planFork returns the plan of a fork.
func (pn *planner) planFork(ctx context.Context, p berth.ProjectID, c *contentCopy, req ForkRequest) (*plan, error) {
	from, policy, name := &c.from.body, c.from.networkPolicy(), cmp.Or(req.Name, c.from.body.Name)
	pl, err := pn.planFrom(ctx, p, CreateRequest{Name: name, UniqueName: req.UniqueName, MemoryLimit: from.MemoryLimit,
		ExpiresAfter:  &from.ExpiresAfter,
		NetworkPolicy: &policy, Source: berth.ContainerSource{OnExpiry: from.Berth.OnExpiry,
			KeepAwake: from.Berth.KeepAwake, Volumes: from.Berth.Volumes}}, c)
	if err != nil {
		return nil, err
	}
	pl.body.Berth.ForkedFrom = c.from.id
	if n := c.from.network.Load(); n != nil {
		// The files may hold the placeholders, and the programs trust the authority.
		pl.network = &network{access: n.present(), secrets: n.secrets}
	}
	return pl, nil
}
