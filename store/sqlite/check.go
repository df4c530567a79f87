package sqlite

import (
	"context"

	base "github.com/berth-run/berth/store/sql"
)

// CheckWrite returns an error unless a write succeeds now. It leaves no data.
func (d *DB) CheckWrite(ctx context.Context) error {
	const unused = -1 // no key has this number
	return d.core.Update(ctx, func(ctx context.Context, tx *base.Tx) error {
		for _, text := range []string{addDoomed, removeDoomed} {
			if _, err := tx.Exec(ctx, text, unused); err != nil {
				return err
			}
		}
		return nil
	})
}
