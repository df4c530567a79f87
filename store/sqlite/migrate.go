package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"github.com/pressly/goose/v3"
	"golang.org/x/sys/unix"
)

//go:embed migrations/*.sql
var migrations embed.FS

// CheckSchema returns an error if the database in a file was written by a later version of Berth. It
// changes nothing.
func CheckSchema(ctx context.Context, path string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("sqlite: %s: %w", path, explain(err))
		}
	}()
	if _, err := os.Stat(path); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?mode=ro&immutable=1")
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var current int64
	if err := db.QueryRowContext(ctx, "SELECT max(version_id) FROM goose_db_version").Scan(&current); err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	files, err := fs.Glob(migrations, "migrations/*.sql") // sorted
	if err != nil {
		return fmt.Errorf("list migrations: %w", err)
	}
	target, err := goose.NumericComponent(files[len(files)-1])
	if err != nil {
		return fmt.Errorf("list migrations: %w", err)
	}
	return later(current, target)
}

// later returns an error if the schema of a database is not known yet.
func later(current, target int64) error {
	if current > target {
		return fmt.Errorf(
			"the database was written by a later version of Berth (schema %d, this version supports up to %d)", current,
			target)
	}
	return nil
}

// migrate updates the schema.
func migrate(ctx context.Context, db *sql.DB) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, dir, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	if err := later(current, target); err != nil {
		return err
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// lockDir waits until no other process opens a database in the directory: concurrent
// migrations would fail, as would concurrent changes to WAL mode. It locks the
// directory, because opening and closing the database's own file would drop SQLite's
// locks.
func lockDir(dir string) (unlock func() error, err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f.Close, nil
}
