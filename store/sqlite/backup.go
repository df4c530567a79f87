package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
)

// Backup copies a consistent state of the database in a file to a new file. A server
// may use the database during the copy. The copy needs the keys of the original. Copy them
// afterwards: then they include all keys of the copy's rows, except those erased
// since.
func Backup(ctx context.Context, path, to string) error {
	if err := backup(ctx, path, to); err != nil {
		return fmt.Errorf("sqlite: back up %s: %w", path, explain(err))
	}
	return nil
}

func backup(ctx context.Context, path, to string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	dsn, err := dataSource(path, "")
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := create(to); err != nil { // with mode 0600
		return errors.Join(err, db.Close())
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", to)
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	verdict, err := integrity(ctx, to)
	if err != nil {
		return err
	}
	if verdict != "ok" {
		return fmt.Errorf("the copy is damaged: %s", verdict)
	}
	return syncFile(to)
}
