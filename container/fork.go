package container

import (
	"context"
	"time"

	"github.com/berth-run/berth"
)

// forkSnapshotLife is the time until the snapshot of a fork expires if the server dies before
// the fork has started.
const forkSnapshotLife = time.Hour

// Fork creates a container with the current files, limits, expiry, network policy and secrets
// of another one. With memory, its processes continue in both. If req.Name is empty, the fork
// has the source's name.
func (svc *Service) Fork(ctx context.Context, caller berth.Caller, id berth.ContainerID, req SnapshotRequest) (*berth.Container, error) {
	p := caller.Project
	s, ctx, release, err := svc.leases.use(ctx, p, id)
	if err != nil {
		return nil, err
	}
	defer release()
	expires := svc.opts.now().Add(forkSnapshotLife).Unix()
	made, err := svc.snapshots.take(ctx, s, &berth.Snapshot{Name: s.body.Name, Memory: req.Memory, Cause: berth.SnapshotForked, ExpiresAt: &expires})
	if err != nil {
		return nil, err
	}
	c, err := svc.forkFrom(ctx, caller, s, made, req.Name)
	if err != nil {
		svc.snapshots.discard(p, made.ID)
	}
	return c, err
}

func (svc *Service) forkFrom(ctx context.Context, caller berth.Caller, s *instance, made *berth.Snapshot, name string) (*berth.Container, error) {
	if name == "" {
		name = s.body.Name
	}
	pl, err := svc.planner.plan(ctx, caller.Project, CreateRequest{Name: name, MemoryLimit: s.body.MemoryLimit, ExpiresAfter: &s.body.ExpiresAfter,
		NetworkPolicy: &s.body.NetworkPolicy, Source: berth.ContainerSource{SnapshotID: made.ID, OnExpiry: s.body.Berth.OnExpiry, Volumes: s.body.Berth.Volumes}})
	if err != nil {
		return nil, err
	}
	pl.body.Berth.FromSnapshot, pl.body.Berth.ForkedFrom = "", s.id
	if n := s.network; n != nil {
		// The files may hold the placeholders, and the programs trust the authority.
		pl.network = &network{policy: n.policy, secrets: n.secrets, ca: n.ca}
	}
	pl.discardAfter = made.ID
	return svc.create(ctx, caller, pl)
}

// discard removes a snapshot that is not needed any more. If that fails, the snapshot
// expires.
func (sn *snapshots) discard(p berth.ProjectID, id berth.SnapshotID) {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := sn.delete(ctx, p, id); err != nil {
		sn.opts.Log.Error("failed to remove a temporary snapshot; it will expire", "snapshot", id, "err", err)
	}
}
