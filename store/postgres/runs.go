package postgres

import (
	"context"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres/query"
)

// Leases end by the database's clock: the times of the caller's clock are converted to
// durations.

func (d responses) AcquireRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease,
	now time.Time) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		n, err := q.AcquireRun(ctx, query.AcquireRunParams{Owner: lease.Owner,
			Lasts: time.Until(lease.Until).Milliseconds(),
			ID:    string(id), Project: string(p), Ahead: time.Until(now).Milliseconds()})
		if err != nil || n > 0 {
			return err
		}
		return absentOr(ctx, q.Queries, p, id, store.ErrConflict)
	})
}

func (d responses) RenewRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		n, err := q.RenewRun(ctx, query.RenewRunParams{Owner: lease.Owner,
			Lasts: time.Until(lease.Until).Milliseconds(), ID: string(id), Project: string(p)})
		if err != nil || n > 0 {
			return err
		}
		return absentOr(ctx, q.Queries, p, id, store.ErrConflict)
	})
}

func (d responses) ReleaseRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error {
		return q.ReleaseRun(ctx, query.ReleaseRunParams{ID: string(id), Project: string(p), LeaseOwner: owner})
	})
}

func (d responses) OrphanedRuns(ctx context.Context, now time.Time) ([]store.RunRef, error) {
	rows, err := d.queries.OrphanedRuns(ctx, time.Until(now).Milliseconds())
	if err != nil {
		return nil, wrap(err)
	}
	refs := make([]store.RunRef, len(rows))
	for i, r := range rows {
		refs[i] = store.RunRef{Project: berth.ProjectID(r.Project), Response: berth.ResponseID(r.ID)}
	}
	return refs, nil
}

func (d responses) ReleaseOwner(ctx context.Context, owner string) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error { return q.ReleaseOwner(ctx, owner) })
}
