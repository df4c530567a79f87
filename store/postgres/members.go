package postgres

import (
	"context"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres/query"
)

var (
	_ store.Members     = (*DB)(nil)
	_ store.Checkpoints = (*DB)(nil)
)

func (d accounts) JoinMember(ctx context.Context, m store.Member, lease time.Duration) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		return q.JoinMember(ctx, query.JoinMemberParams{ID: m.ID, Address: m.Address, Version: m.Version,
			Lasts: lease.Milliseconds()})
	})
}

func (d accounts) RenewMember(ctx context.Context, id string, lease time.Duration) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		return found(q.RenewMember(ctx, query.RenewMemberParams{ID: id, Lasts: lease.Milliseconds()}))
	})
}

func (d accounts) ListMembers(ctx context.Context) ([]store.Member, error) {
	rows, err := d.queries.ListMembers(ctx)
	if err != nil {
		return nil, wrap(err)
	}
	members := make([]store.Member, len(rows))
	for i, r := range rows {
		members[i] = store.Member{ID: r.ID, Address: r.Address, Version: r.Version,
			Silent: time.Duration(r.Silent) * time.Millisecond}
	}
	return members, nil
}

func (d accounts) RemoveMember(ctx context.Context, id string, silent time.Duration) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		n, err := q.RemoveMember(ctx, query.RemoveMemberParams{ID: id, Ago: silent.Milliseconds()})
		if err != nil {
			return err
		}
		if n > 0 {
			return q.ReleaseOwner(ctx, id)
		}
		if n, err = q.MemberExists(ctx, id); err == nil && n > 0 {
			return store.ErrConflict
		}
		return found(n, err)
	})
}

func (d accounts) RunOwner(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (string, error) {
	row, err := d.queries.RunOwner(ctx, query.RunOwnerParams{ID: string(id), Project: string(p)})
	if err != nil {
		return "", wrap(err)
	}
	if !row.Held {
		return "", nil
	}
	return row.LeaseOwner, nil
}

func (d accounts) Lock(ctx context.Context, name, owner string, lease time.Duration) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		n, err := q.AcquireLock(ctx, query.AcquireLockParams{Name: name, Owner: owner, Lasts: lease.Milliseconds()})
		if err == nil && n == 0 {
			return store.ErrConflict
		}
		return err
	})
}

func (d accounts) Unlock(ctx context.Context, name, owner string) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		return q.ReleaseLock(ctx, query.ReleaseLockParams{Name: name, Owner: owner})
	})
}

func (d accounts) SaveCheckpoint(ctx context.Context, c store.Checkpoint) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		n, err := q.SaveCheckpoint(ctx, query.SaveCheckpointParams{Origin: c.Origin, Server: c.Server,
			PublicKey: c.PublicKey, Size: c.Size, Signed: c.Signed})
		if err == nil && n == 0 {
			return store.ErrConflict
		}
		return err
	})
}

func (d accounts) ListCheckpoints(ctx context.Context) ([]store.Checkpoint, error) {
	rows, err := d.queries.ListCheckpoints(ctx)
	if err != nil {
		return nil, wrap(err)
	}
	list := make([]store.Checkpoint, len(rows))
	for i, r := range rows {
		list[i] = store.Checkpoint(r)
	}
	return list, nil
}
