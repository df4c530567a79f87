package sqlite

import (
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/berth-run/berth/store"
)

// Convert implements base.Driver.
func (d *core) Convert(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch e.Code() {
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE:
		return fmt.Errorf("%w: %w", store.ErrExists, err)
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY: // the parent of the row
		return fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	err = fmt.Errorf("sqlite: %s: %w", d.path, explain(err))
	if lacksStorage(e.Code()) {
		return fmt.Errorf("%w: %w", store.ErrStorage, err)
	}
	return err
}

// lacksStorage reports whether a result code of SQLite means that the disk refused a
// write.
func lacksStorage(code int) bool {
	switch code {
	case sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS,
		sqlite3.SQLITE_IOERR_DATA,
		sqlite3.SQLITE_IOERR_NOMEM, sqlite3.SQLITE_IOERR_ACCESS, sqlite3.SQLITE_IOERR_AUTH:
		return false
	}
	return code&0xff == sqlite3.SQLITE_FULL || code&0xff == sqlite3.SQLITE_IOERR
}

// explain prefixes an error of SQLite with the operator's remedy.
func explain(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch e.Code() & 0xff { // the primary code
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("the disk is full; nothing of this write was saved: %w", err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("the file is damaged or is not a database; restore it from a backup: %w", err)
	case sqlite3.SQLITE_BUSY:
		return fmt.Errorf("another process has locked the database for %d s; nothing of this write was saved: %w",
			busyTimeout/1000, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return fmt.Errorf("check the permissions of the file and its directory: %w", err)
	case sqlite3.SQLITE_IOERR:
		return fmt.Errorf("the disk is failing: %w", err)
	}
	return err
}
