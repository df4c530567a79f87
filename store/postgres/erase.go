package postgres

import (
	"context"
	"slices"
)

// erase runs do in a transaction, which deletes rows and returns their keys. It then
// erases the keys.
func (d *core) erase(ctx context.Context, do func(context.Context, *transaction) ([]int64, error)) error {
	var gone []int64
	err := d.update(ctx, func(ctx context.Context, q *transaction) (err error) {
		if gone, err = do(ctx, q); err != nil {
			return err
		}
		// Rows that a version before sealing wrote to a database that was copied here have the key 0.
		gone = slices.DeleteFunc(gone, func(n int64) bool { return n == 0 })
		return q.Doom(ctx, gone)
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	return d.eraser.Erase(gone)
}

// doomed implements sealed.Doomed with a table.
type doomed struct{ *core }

func (d doomed) List(ctx context.Context) ([]int64, error) { return d.queries.Doomed(ctx) }

// Sync does nothing: PostgreSQL syncs each commit. See beginTransaction.
func (d doomed) Sync() error { return nil }

func (d doomed) Remove(ctx context.Context, keys []int64) error {
	return d.update(ctx, func(ctx context.Context, q *transaction) error { return q.Done(ctx, keys) })
}
