package sql

import (
	"context"
	"errors"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

func (d accounts) ProjectResponses(ctx context.Context, p berth.ProjectID, limit int) ([]berth.ResponseID, error) {
	ids, err := Column[berth.ResponseID](ctx, d.driver,
		`SELECT id FROM responses WHERE project = $1 AND NOT deleted LIMIT $2`, p, limit)
	return ids, d.driver.Convert(err)
}

func (d accounts) ProjectObjects(ctx context.Context, p berth.ProjectID, limit int) ([]store.ObjectKey, error) {
	keys, err := List(ctx, d.driver, `SELECT kind, id FROM objects WHERE project = $1 AND parent = '' LIMIT $2`,
		in{p, limit}, func(k *store.ObjectKey) []any { return []any{&k.Kind, &k.ID} })
	return keys, d.driver.Convert(err)
}

// StoredBytes returns the size of a project's rows, which triggers count; see the migrations.
func (d accounts) StoredBytes(ctx context.Context, p berth.ProjectID) (n int64, err error) {
	err = d.read(ctx, `SELECT bytes FROM stored WHERE project = $1`, in{p}, &n)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	return n, err
}

// addStored adds to StoredBytes.
func addStored(ctx context.Context, tx *Tx, p berth.ProjectID, bytes int64) error {
	return tx.Run(ctx, `INSERT INTO stored (project, bytes) VALUES ($1, $2)
		ON CONFLICT (project) DO UPDATE SET bytes = stored.bytes + excluded.bytes`, string(p), bytes)
}
