package sqlite

import (
	"context"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

func (d responses) AcquireRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease,
	now time.Time) error {
	return d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		n, err := q.AcquireRun(ctx, query.AcquireRunParams{Owner: lease.Owner, Until: lease.Until.UnixMilli(),
			ID: string(id), Project: string(p), Now: now.UnixMilli()})
		if err != nil || n > 0 {
			return err
		}
		return absentOr(ctx, q, p, id, store.ErrConflict)
	})
}

func (d responses) RenewRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease) error {
	return d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		n, err := q.RenewRun(ctx, query.RenewRunParams{Owner: lease.Owner, Until: lease.Until.UnixMilli(),
			ID: string(id), Project: string(p)})
		if err != nil || n > 0 {
			return err
		}
		return absentOr(ctx, q, p, id, store.ErrConflict)
	})
}

func (d responses) ReleaseRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string) error {
	return d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		return q.ReleaseRun(ctx, query.ReleaseRunParams{ID: string(id), Project: string(p), LeaseOwner: owner})
	})
}

func (d responses) OrphanedRuns(ctx context.Context, now time.Time) ([]store.RunRef, error) {
	rows, err := d.queries.OrphanedRuns(ctx, now.UnixMilli())
	if err != nil {
		return nil, d.wrap(err)
	}
	refs := make([]store.RunRef, len(rows))
	for i, r := range rows {
		refs[i] = store.RunRef{Project: berth.ProjectID(r.Project), Response: berth.ResponseID(r.ID)}
	}
	return refs, nil
}

func (d responses) ReleaseOwner(ctx context.Context, owner string) error {
	return d.settle(ctx, func(ctx context.Context, q *query.Queries) error { return q.ReleaseOwner(ctx, owner) })
}
