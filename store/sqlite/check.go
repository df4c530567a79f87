package sqlite

import (
	"context"

	"github.com/berth-run/berth/store/sqlite/query"
)

// CheckWrite returns an error unless a write succeeds now. It leaves no data.
func (d *DB) CheckWrite(ctx context.Context) error {
	const unused = -1 // no key has this number
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		if err := q.Doom(ctx, unused); err != nil {
			return err
		}
		return q.Done(ctx, unused)
	})
}
