package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/store"
)

// Create saves a container and returns it while its sandbox is still being started; the
// first use waits for the start. If the start fails, the container ends with the reason
// "host" and its users get the error.
func (svc *Service) Create(ctx context.Context, caller berth.Caller, req CreateRequest) (*berth.Container, error) {
	pl, err := svc.planner.plan(ctx, caller.Project, req)
	if err != nil {
		return nil, err
	}
	if _, err := svc.creator.create(ctx, caller, pl); err != nil {
		return nil, err
	}
	return pl.body, nil
}

// Get returns a container. As in the hosted service, this counts as a use.
func (svc *Service) Get(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	if s := svc.index.lookup(p, id); s != nil {
		s.touch(svc.opts.clock.Now())
	}
	return svc.Look(ctx, p, id)
}

// Look is Get without a use of the container, for those who watch it: a page that shows it must not keep it awake.
func (svc *Service) Look(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	rec, err := svc.opts.container(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return currentOf(svc, rec), nil
}

// List returns one page of containers and whether there are more. If name is not empty,
// only containers with that name are listed.
func (svc *Service) List(ctx context.Context, p berth.ProjectID, name string, page store.Page) ([]*berth.Container,
	bool, error) {
	recs, more, err := svc.opts.Store.ListContainers(ctx, p, name, page)
	if err != nil {
		return nil, false, fmt.Errorf("list containers: %w", err)
	}
	list := make([]*berth.Container, len(recs))
	for i, rec := range recs {
		list[i] = currentOf(svc, rec)
	}
	return list, more, nil
}

// currentOf returns a stored container with the state that is not in the store yet.
func currentOf(svc *Service, rec *store.Container) *berth.Container {
	if s := svc.index.lookup(rec.Project, rec.Body.ID); s != nil && rec.Body.Status == berth.ContainerRunning {
		s.showPause(&rec.Body.Berth)
		rec.Body.LastActiveAt = max(rec.Body.LastActiveAt, s.lastActive(svc.opts.clock.Now()).Unix())
	}
	return rec.Body
}

// Delete ends a container and removes all of it before it returns nil. After an error
// other than CodeNotFound the sweeper retries the removal.
func (svc *Service) Delete(ctx context.Context, p berth.ProjectID, id berth.ContainerID) error {
	rec, err := svc.opts.container(ctx, p, id)
	if err != nil {
		return err
	}
	if err := svc.opts.held(ctx, p, id); err != nil {
		return err
	}
	if s := svc.index.lookup(p, id); s != nil {
		svc.deaths.end(s, reasonDeleted, berth.NotFound("Container", id), nil, nil)
		if err := svc.deaths.remove(s); err != nil {
			return fmt.Errorf("remove sandbox: %w", err)
		}
	}
	if err := svc.snapshots.delete(ctx, p, rec.Body.Berth.LastSnapshot); err != nil {
		return err
	}
	if err := svc.opts.Store.DeleteContainer(ctx, p, id); err != nil && !errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("delete container: %w", err)
	}
	return nil
}

// OnEnded sets the function that is called when the end of a container of this server is saved. It must not block.
func (svc *Service) OnEnded(f func(berth.ProjectID, berth.ContainerID)) { svc.deaths.ended.Store(&f) }

// History returns up to maxHistory of a container's newest audit entries, and the log's last
// signed checkpoint. The container may be deleted.
func (svc *Service) History(ctx context.Context, p berth.ProjectID, id berth.ContainerID) ([]*audit.Entry, string,
	error) {
	entries, err := svc.opts.Audit.OfContainer(ctx, p, id, maxHistory)
	if err == nil && len(entries) == 0 {
		if _, err = svc.opts.Store.GetContainer(ctx, p, id); errors.Is(err, store.ErrNotFound) {
			err = berth.NotFound("Container", id)
		}
		entries = []*audit.Entry{} // these entries are not written yet
	}
	return entries, svc.opts.Audit.Checkpoint(), err
}

// maxHistory bounds the entries that History returns.
const maxHistory = 1000

// Pause stops all processes of a container until its next use, which resumes it. A paused
// container still has its memory and still expires. Its network connections end. Pause returns
// an error if the container is in use, and nil if it is paused already.
//
// The driver records which sandboxes are paused, also across restarts. The store records which of
// them a client paused; the others sleep.
func (svc *Service) Pause(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	features := svc.opts.Driver.Features()
	if !features.Pause {
		return nil, berth.Invalid("", "Containers cannot be paused: this server's driver, %s, does not support it.",
			features.Isolation)
	}
	s, err := svc.leases.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	ctx, stop := s.withLife(ctx)
	defer stop()
	if err := s.waitStarted(ctx); err != nil {
		return nil, err
	}
	if err := s.files.lock.acquire(ctx); err != nil { // a scan for new files does not hold the container
		return nil, err
	}
	err = svc.pauser.pause(ctx, s)
	s.files.lock.release()
	if err != nil {
		return nil, err
	}
	svc.pauser.savePaused(ctx, s, true)
	return svc.Get(ctx, p, id)
}

// Resume continues a paused container, as any use does.
func (svc *Service) Resume(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.Container, error) {
	_, release, err := svc.leases.hold(ctx, p, id)
	if err != nil {
		return nil, err
	}
	release()
	return svc.Get(ctx, p, id)
}

// SetNetworkPolicy replaces a container's network policy and transforms. All its connections end, and the new policy
// decides about later ones, also those of processes that run already. Secrets are bound to a policy, so
// neither the old nor the new one may have any. If the policy cannot be saved, nothing changes.
func (svc *Service) SetNetworkPolicy(ctx context.Context, c berth.Caller, id berth.ContainerID,
	want *berth.NetworkPolicy, transforms []egress.Transform) error {
	s, err := svc.leases.find(ctx, c.Project, id)
	if err != nil {
		return err
	}
	ctx, stop := s.withLife(ctx)
	defer stop()
	if err := s.waitStarted(ctx); err != nil {
		return err
	}
	if err := s.policy.lock.acquire(ctx); err != nil {
		return err
	}
	defer s.policy.lock.release()
	next, err := svc.networks.parse(id, want, transforms)
	if err != nil {
		return err
	}
	present := s.network.Load()
	if present != nil && len(present.secrets) > 0 || next != nil && len(next.secrets) > 0 {
		return berth.Invalid("network_policy.domain_secrets",
			"The network policy of a container with secrets cannot be changed.")
	}
	if present != nil && next != nil && next.access.ca != nil {
		// Programs that run trust the present authority.
		next.access.ca = cmp.Or(present.present().ca, next.access.ca)
	}
	if err := svc.networks.save(ctx, s, next); err != nil {
		return fmt.Errorf("save transforms: %w", err)
	}
	saved := withoutSecrets(want)
	_, err = svc.opts.Store.UpdateContainer(ctx, s.project, s.id, func(c *berth.Container) error {
		if c.Status != berth.ContainerRunning {
			return goneError(c, c.Berth.Reason)
		}
		c.NetworkPolicy = saved
		return nil
	})
	if err != nil {
		if undone := svc.networks.save(context.WithoutCancel(ctx), s, present); undone != nil {
			svc.opts.Log.Error("failed to restore the transforms of a container", "container", s.id, "err", undone)
		}
		return err
	}
	s.mu.Lock()
	s.policy.present = &saved
	s.mu.Unlock()
	svc.networks.trail.recordPolicy(s, c.Key, saved.Type, next)
	return svc.networks.replace(ctx, s, present, next)
}

// Stats returns the current resource use of a container. It does not count as a use of the
// container.
func (svc *Service) Stats(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (*berth.ContainerStats, error) {
	s, err := svc.leases.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return svc.meter.stats(ctx, s)
}

// StatsHistory returns the resource use of a container since its sandbox or the server started, the oldest sample
// first: a sample each ten seconds, and of a longer time fewer.
func (svc *Service) StatsHistory(ctx context.Context, p berth.ProjectID, id berth.ContainerID) ([]berth.StatsSample,
	error) {
	s, err := svc.leases.find(ctx, p, id)
	if err != nil {
		return nil, err
	}
	return s.history.all(), nil
}

// Readings returns the resource use of the running containers. It omits those that cannot be
// read in time.
func (svc *Service) Readings(ctx context.Context) []Reading { return svc.meter.readings(ctx) }
