package sqlite

import (
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/berth-run/berth/store"
)

// errClosed is the error of writes after Close.
var errClosed = fmt.Errorf("sqlite: %w", store.ErrClosed)

// wrap gives an error its identity in the store's terms.
func (d *core) wrap(err error) error {
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
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY: // what the row belongs to
		return fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	err = fmt.Errorf("sqlite: %s: %w", d.path, explain(err))
	if lacksStorage(e.Code()) {
		return fmt.Errorf("%w: %w", store.ErrStorage, err)
	}
	return err
}

// lacksStorage reports whether a result of SQLite says that the disk does not take a
// write.
func lacksStorage(code int) bool {
	switch code {
	case sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS, sqlite3.SQLITE_IOERR_DATA,
		sqlite3.SQLITE_IOERR_NOMEM, sqlite3.SQLITE_IOERR_ACCESS, sqlite3.SQLITE_IOERR_AUTH:
		return false
	}
	return code&0xff == sqlite3.SQLITE_FULL || code&0xff == sqlite3.SQLITE_IOERR
}

// explain puts what an operator can do about an error of SQLite before it.
func explain(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch e.Code() & 0xff { // the rest is detail
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("the disk is full, nothing of this was saved: %w", err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("the file is damaged or is no database; restore it from a copy: %w", err)
	case sqlite3.SQLITE_BUSY:
		return fmt.Errorf("another process has kept the database for %d s, nothing of this was saved: %w", busyTimeout/1000, err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return fmt.Errorf("check the permissions of the file and its directory: %w", err)
	case sqlite3.SQLITE_IOERR:
		return fmt.Errorf("the disk fails: %w", err)
	}
	return err
}

// found turns a count of changed rows into ErrNotFound if there was none.
func found(n int64, err error) error {
	if err == nil && n == 0 {
		return store.ErrNotFound
	}
	return err
}
