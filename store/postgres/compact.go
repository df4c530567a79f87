package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/berth-run/berth/store/transfer"
)

// Compact rewrites all tables of a database without the space of deleted rows, which goes back to
// the disk. The disk must have room for a second copy of the largest table. It returns the sizes of
// the database in bytes, and ErrClaimed if a server uses the database.
func Compact(ctx context.Context, at string) (before, after int64, err error) {
	config, err := parse(at, "compact")
	if err != nil {
		return 0, 0, prefixed(err)
	}
	c, err := connectLong(ctx, config.ConnConfig)
	if err != nil {
		return 0, 0, prefixed(wrap(err))
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	if err := claim(ctx, c, claimOf(&Options{Claim: true})); err != nil {
		return 0, 0, prefixed(wrap(err))
	}
	size := func(to *int64) error {
		if err := c.QueryRow(ctx, "SELECT pg_database_size(current_database())").Scan(to); err != nil {
			return fmt.Errorf("postgres: read size: %w", wrap(err))
		}
		return nil
	}
	if err := size(&before); err != nil {
		return 0, 0, err
	}
	for _, table := range append([]string{"row_keys"}, transfer.Tables...) {
		if _, err := c.Exec(ctx, "VACUUM (FULL, ANALYZE) "+pgx.Identifier{table}.Sanitize()); err != nil {
			return 0, 0, fmt.Errorf("postgres: compact %s: %w", table, wrap(err))
		}
	}
	return before, after, size(&after)
}
