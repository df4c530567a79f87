package postgres

import (
	"context"
	"errors"

	"github.com/berth-run/berth/store"
	base "github.com/berth-run/berth/store/sql"
)

var _ store.Checkpoints = (*DB)(nil)

// SaveCheckpoint implements store.Checkpoints.
func (d *DB) SaveCheckpoint(ctx context.Context, c store.Checkpoint) error {
	return d.core.Update(ctx, func(ctx context.Context, tx *base.Tx) error {
		err := tx.Change(ctx, `INSERT INTO checkpoints (origin, server, public_key, size, signed)
			VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (origin) DO UPDATE SET server = excluded.server, public_key = excluded.public_key,
				size = excluded.size, signed = excluded.signed
			WHERE checkpoints.size <= excluded.size`, c.Origin, c.Server, c.PublicKey, c.Size, c.Signed)
		if errors.Is(err, store.ErrNotFound) {
			return store.ErrConflict
		}
		return err
	})
}

// ListCheckpoints implements store.Checkpoints.
func (d *DB) ListCheckpoints(ctx context.Context) ([]store.Checkpoint, error) {
	all, err := base.List(ctx, d.core, `SELECT origin, server, public_key, size, signed FROM checkpoints
		ORDER BY origin`, nil, func(c *store.Checkpoint) []any {
		return []any{&c.Origin, &c.Server, &c.PublicKey, &c.Size, &c.Signed}
	})
	return all, wrap(err)
}
