package sqlite

import (
	"context"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

// Processes that share a database file are on one machine, whose clock is the store's.

var _ store.Members = (*DB)(nil)

func (d accounts) JoinMember(ctx context.Context, m store.Member, lease time.Duration) error {
	return d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		return q.JoinMember(ctx, query.JoinMemberParams{ID: m.ID, Address: m.Address, Version: m.Version,
			LeaseUntil: time.Now().Add(lease).UnixMilli()})
	})
}

func (d accounts) RenewMember(ctx context.Context, id string, lease time.Duration) error {
	return d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		return found(q.RenewMember(ctx, query.RenewMemberParams{ID: id, Until: time.Now().Add(lease).UnixMilli()}))
	})
}

func (d accounts) ListMembers(ctx context.Context) ([]store.Member, error) {
	rows, err := d.queries.ListMembers(ctx)
	if err != nil {
		return nil, d.wrap(err)
	}
	now := time.Now()
	members := make([]store.Member, len(rows))
	for i, r := range rows {
		members[i] = store.Member{ID: r.ID, Address: r.Address, Version: r.Version,
			Silent: now.Sub(time.UnixMilli(r.LeaseUntil))}
	}
	return members, nil
}

func (d accounts) RemoveMember(ctx context.Context, id string, silent time.Duration) error {
	return d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		n, err := q.RemoveMember(ctx, query.RemoveMemberParams{ID: id, Before: time.Now().Add(-silent).UnixMilli()})
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
		return "", d.wrap(err)
	}
	if row.LeaseUntil <= time.Now().UnixMilli() {
		return "", nil
	}
	return row.LeaseOwner, nil
}

func (d accounts) Lock(ctx context.Context, name, owner string, lease time.Duration) error {
	return d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		now := time.Now()
		n, err := q.AcquireLock(ctx, query.AcquireLockParams{Name: name, Owner: owner,
			Until: now.Add(lease).UnixMilli(), Now: now.UnixMilli()})
		if err != nil || n > 0 {
			return err
		}
		n, err = q.CreateLock(ctx, query.CreateLockParams{Name: name, Owner: owner,
			LeaseUntil: now.Add(lease).UnixMilli()})
		if err == nil && n == 0 {
			return store.ErrConflict
		}
		return err
	})
}

func (d accounts) Unlock(ctx context.Context, name, owner string) error {
	return d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		return q.ReleaseLock(ctx, query.ReleaseLockParams{Name: name, Owner: owner})
	})
}
