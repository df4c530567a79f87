package sql

import (
	"context"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Leases end by the database's clock: the times of the caller's clock are converted to
// durations from now.

func (d responses) AcquireRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease,
	now time.Time) error {
	return d.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) error {
		n, err := tx.Exec(ctx, `UPDATE responses SET lease_owner = $1, lease_until = {now} + $2
			WHERE id = $3 AND project = $4 AND NOT deleted AND NOT final
				AND (lease_owner = '' OR lease_owner = $1 OR lease_until <= {now} + $5)`,
			lease.Owner, time.Until(lease.Until).Milliseconds(), id, p, time.Until(now).Milliseconds())
		if err != nil || n > 0 {
			return err
		}
		return absentOr(ctx, tx, p, id, store.ErrConflict)
	})
}

func (d responses) RenewRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease) error {
	return d.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) error {
		n, err := tx.Exec(ctx, `UPDATE responses SET lease_until = {now} + $2
			WHERE id = $3 AND project = $4 AND NOT deleted AND NOT final AND lease_owner = $1`,
			lease.Owner, time.Until(lease.Until).Milliseconds(), id, p)
		if err != nil || n > 0 {
			return err
		}
		return absentOr(ctx, tx, p, id, store.ErrConflict)
	})
}

func (d responses) ReleaseRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string) error {
	return d.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) error {
		return tx.Run(ctx, `UPDATE responses SET lease_owner = '', lease_until = 0
			WHERE id = $1 AND project = $2 AND lease_owner = $3`, id, p, owner)
	})
}

func (d responses) OrphanedRuns(ctx context.Context, now time.Time) ([]store.RunRef, error) {
	refs, err := List(ctx, d.driver, `SELECT project, id FROM responses
		WHERE NOT deleted AND (NOT final OR NOT stored) AND lease_until <= {now} + $1 ORDER BY lease_until, id`,
		in{time.Until(now).Milliseconds()}, func(r *store.RunRef) []any { return []any{&r.Project, &r.Response} })
	return refs, d.driver.Convert(err)
}

func (d responses) ReleaseOwner(ctx context.Context, owner string) error {
	return d.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) error {
		return releaseOwner(ctx, tx, owner)
	})
}

func releaseOwner(ctx context.Context, tx *Tx, owner string) error {
	return tx.Run(ctx, `UPDATE responses SET lease_owner = '', lease_until = 0
		WHERE lease_owner = $1 AND NOT deleted AND (NOT final OR NOT stored)`, owner)
}
