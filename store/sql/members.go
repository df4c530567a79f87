package sql

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func (d accounts) JoinMember(ctx context.Context, m store.Member, lease time.Duration) error {
	return d.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) error {
		return tx.Run(ctx, `INSERT INTO members (id, address, version, lease_until) VALUES ($1, $2, $3, {now} + $4)
			ON CONFLICT (id) DO UPDATE SET address = excluded.address, version = excluded.version,
				lease_until = excluded.lease_until`, m.ID, m.Address, m.Version, lease.Milliseconds())
	})
}

func (d accounts) RenewMember(ctx context.Context, id string, lease time.Duration) error {
	return d.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) error {
		return tx.Change(ctx, `UPDATE members SET lease_until = {now} + $2 WHERE id = $1`, id, lease.Milliseconds())
	})
}

func (d accounts) ListMembers(ctx context.Context) ([]store.Member, error) {
	members, err := List(ctx, d.driver, `SELECT id, address, version, {now} - lease_until FROM members ORDER BY id`,
		nil, func(m *store.Member) []any { return []any{&m.ID, &m.Address, &m.Version, (*int64)(&m.Silent)} })
	for i := range members {
		members[i].Silent *= time.Millisecond
	}
	return members, d.driver.Convert(err)
}

func (d accounts) RemoveMember(ctx context.Context, id string, silent time.Duration) error {
	return d.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) error {
		n, err := tx.Exec(ctx, `DELETE FROM members WHERE id = $1 AND lease_until <= {now} - $2`, id,
			silent.Milliseconds())
		if err != nil {
			return err
		}
		if n > 0 {
			return releaseOwner(ctx, tx, id)
		}
		var one int
		if err := Read(ctx, tx, `SELECT 1 FROM members WHERE id = $1`, in{id}, &one); err != nil {
			return err
		}
		return store.ErrConflict
	})
}

func (d accounts) RunOwner(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (string, error) {
	var owner string
	var ended bool
	err := d.read(ctx, `SELECT lease_owner, lease_until <= {now} FROM responses
		WHERE id = $1 AND project = $2 AND NOT deleted`, in{id, p}, &owner, &ended)
	if err != nil || ended {
		return "", err
	}
	return owner, nil
}

func (d accounts) Lock(ctx context.Context, name, owner string, lease time.Duration) error {
	return d.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) error {
		err := tx.Change(ctx, `INSERT INTO locks (name, owner, lease_until) VALUES ($1, $2, {now} + $3)
			ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
			WHERE locks.owner = excluded.owner OR locks.lease_until <= {now}`, name, owner, lease.Milliseconds())
		if errors.Is(err, store.ErrNotFound) {
			return store.ErrConflict
		}
		return err
	})
}

func (d accounts) Unlock(ctx context.Context, name, owner string) error {
	return d.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) error {
		return tx.Run(ctx, `DELETE FROM locks WHERE name = $1 AND owner = $2`, name, owner)
	})
}
