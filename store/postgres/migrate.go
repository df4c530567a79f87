package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Advisory locks of a database.
const (
	lockMigrate = 0x6265727468_01 // while the schema is updated
	lockWrite   = 0x6265727468_02 // during a transaction that writes
	lockClaim   = 0x6265727468_03 // by the connection for writes of a server
)

// migrate updates the schema. Processes take turns.
func migrate(ctx context.Context, config *pgx.ConnConfig) (err error) {
	turn, err := connect(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, turn.Close(context.WithoutCancel(ctx))) }() // releases the lock
	if _, err := turn.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(lockMigrate)); err != nil {
		return fmt.Errorf("lock the schema: %w", err)
	}
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*config.Copy())
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := goose.NewProvider(goose.DialectPostgres, db, dir, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if current > target {
		return fmt.Errorf(
			"the database was written by a later version of Berth (schema %d, this version supports up to %d)", current,
			target)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
