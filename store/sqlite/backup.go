package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
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

// ReadPages calls read with the content of a database file as of one moment, page by page in their places, so that a
// part that did not change is equal in two copies. A server may use the database at the same time.
func ReadPages(ctx context.Context, path string, read func(io.Reader) error) error {
	if err := readPages(ctx, path, read); err != nil {
		return fmt.Errorf("sqlite: read the pages of %s: %w", path, explain(err))
	}
	return nil
}

func readPages(ctx context.Context, path string, read func(io.Reader) error) error {
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
	rows, err := db.QueryContext(ctx, "SELECT data FROM sqlite_dbpage ORDER BY pgno") // one statement, one snapshot
	if err != nil {
		return errors.Join(err, db.Close())
	}
	err = read(&pages{rows: rows})
	return errors.Join(err, rows.Close(), db.Close())
}

// pages is an io.Reader of the pages in rows.
type pages struct {
	rows *sql.Rows
	page []byte // what is left of it
	row  sql.RawBytes
}

func (p *pages) Read(to []byte) (int, error) {
	if len(p.page) == 0 {
		if !p.rows.Next() {
			if err := p.rows.Err(); err != nil {
				return 0, fmt.Errorf("read page: %w", err)
			}
			return 0, io.EOF
		}
		if err := p.rows.Scan(&p.row); err != nil {
			return 0, fmt.Errorf("read page: %w", err)
		}
		p.page = p.row
	}
	n := copy(to, p.page)
	p.page = p.page[n:]
	return n, nil
}
