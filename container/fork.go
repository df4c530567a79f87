package container

import (
	"context"
	"time"

	"github.com/berth-run/berth"
)

// forkLife is how long the snapshot of a fork is kept that is not made because the
// server dies.
const forkLife = time.Hour

// Fork makes a container with what is in another one now, its limits, its expiry,
// its network policy and its secrets; with memory, what runs goes on in both. An
// empty name is the other's.
func (k *Service) Fork(ctx context.Context, caller berth.Caller, id berth.ContainerID, req SnapshotRequest) (*berth.Container, error) {
	p := caller.Project
	s, ctx, release, err := k.leases.use(ctx, p, id)
	if err != nil {
		return nil, err
	}
	defer release()
	expires := k.opts.now().Add(forkLife).Unix()
	kept, err := k.snapshots.take(ctx, s, &berth.Snapshot{Name: s.body.Name, Memory: req.Memory, Cause: berth.SnapshotForked, ExpiresAt: &expires})
	if err != nil {
		return nil, err
	}
	c, err := k.forkFrom(ctx, caller, s, kept, req.Name)
	if err != nil {
		k.snapshots.discard(p, kept.ID)
	}
	return c, err
}

func (k *Service) forkFrom(ctx context.Context, caller berth.Caller, s *instance, kept *berth.Snapshot, name string) (*berth.Container, error) {
	if name == "" {
		name = s.body.Name
	}
	pl, err := k.planner.plan(ctx, caller.Project, CreateRequest{Name: name, MemoryLimit: s.body.MemoryLimit, ExpiresAfter: &s.body.ExpiresAfter,
		NetworkPolicy: &s.body.NetworkPolicy, Source: berth.ContainerSource{SnapshotID: kept.ID, OnExpiry: s.body.Berth.OnExpiry, Volumes: s.body.Berth.Volumes}})
	if err != nil {
		return nil, err
	}
	pl.body.Berth.FromSnapshot, pl.body.Berth.ForkedFrom = "", s.id
	if n := s.network; n != nil {
		// With its placeholders, which may be in its files, and the authority that
		// its programs trust.
		pl.network = &network{policy: n.policy, secrets: n.secrets, ca: n.ca}
	}
	pl.dispose = kept.ID
	return k.create(ctx, caller, pl)
}

// dispose removes a snapshot that is of no use any more. If it cannot, the snapshot
// is left to expire.
func (sn *snapshots) discard(p berth.ProjectID, id berth.SnapshotID) {
	ctx, cancel := context.WithTimeout(context.Background(), burialTime)
	defer cancel()
	if err := sn.delete(ctx, p, id); err != nil {
		sn.opts.Log.Error("a snapshot that is of no use was not removed; it will expire", "snapshot", id, "err", err)
	}
}
