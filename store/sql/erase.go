package sql

import (
	"context"
	"slices"
)

// erase runs do in a transaction, which deletes rows and returns their keys. It then erases the
// keys.
func (c *core) erase(ctx context.Context, do func(context.Context, *Tx) ([]int64, error)) error {
	var gone []int64
	err := c.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) (err error) {
		if gone, err = do(ctx, tx); err != nil {
			return err
		}
		gone = slices.DeleteFunc(gone, func(n int64) bool { return n == 0 }) // of unsealed rows
		return c.eachKey(ctx, tx, c.own.AddDoomed, gone)
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	return c.eraser.Erase(gone)
}

// eachKey runs a statement for keys.
func (c *core) eachKey(ctx context.Context, tx *Tx, text string, keys []int64) error {
	if c.own.ManyKeys != nil {
		return tx.Run(ctx, text, c.own.ManyKeys(keys))
	}
	for _, n := range keys {
		if err := tx.Run(ctx, text, n); err != nil {
			return err
		}
	}
	return nil
}

// doomed implements sealed.Doomed with a table.
type doomed struct{ *core }

func (d doomed) List(ctx context.Context) ([]int64, error) {
	return Column[int64](ctx, d.driver, `SELECT seal FROM doomed`)
}

func (d doomed) Sync() error { return d.driver.Sync() }

func (d doomed) Remove(ctx context.Context, keys []int64) error {
	return d.driver.UpdateWithReserve(ctx, func(ctx context.Context, tx *Tx) error {
		return d.eachKey(ctx, tx, d.own.RemoveDoomed, keys)
	})
}
