package postgres

import "context"

// CheckWrite returns an error unless a write succeeds now. It leaves no data.
func (d *DB) CheckWrite(ctx context.Context) error {
	return d.update(ctx, func(context.Context, *transaction) error { return nil }) // its batch is recorded
}
