package sqlite

import (
	"context"

	"github.com/berth-run/berth/store/sqlite/query"
)

// CheckWrite returns an error unless something can be written now. What it writes is
// gone when it returns.
func (d *DB) CheckWrite(ctx context.Context) error {
	const none = -1 // no key has that number
	return d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		if err := q.Doom(ctx, none); err != nil {
			return err
		}
		return q.Done(ctx, none)
	})
}
