// Package sqlite keeps the state of a server in one SQLite file.
package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"sync"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

//go:generate go tool -modfile=../../tools/go.mod sqlc generate

//go:embed migrations/*.sql
var migrations embed.FS

// Options tune a database. The zero value is right for most.
type Options struct {
	// Synchronous is "normal" (the default) or "full". Both lose nothing when the
	// process dies. With normal, a power cut may lose the last moments; full waits
	// for the disk at each commit, which the writes that wait together share.
	Synchronous string
}

// A DB is a store.Store in one file, in WAL mode: one writer, which gathers
// concurrent writes into one transaction, and many readers. Another process, such
// as the command line, may use the file at the same time.
type DB struct {
	write   *sql.DB // one connection
	read    *sql.DB
	writer  *query.Queries // prepared on write
	queries *query.Queries // prepared on read

	writes chan *write
	purge  chan struct{} // something was deleted: take it out of the log as well
	closed chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
}

var _ store.Store = (*DB)(nil)

// Open opens the database in a file, which it makes, and brings its tables up to
// date. A file of a later version of Berth is refused.
func Open(ctx context.Context, path string, opts *Options) (*DB, error) {
	if opts == nil {
		opts = &Options{}
	}
	sync := "NORMAL"
	switch opts.Synchronous {
	case "", "normal":
	case "full":
		sync = "FULL"
	default:
		return nil, fmt.Errorf("sqlite: synchronous must be normal or full, not %q", opts.Synchronous)
	}
	dsn := func(extra string) string {
		return "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)" +
			"&_pragma=synchronous(" + sync + ")&_pragma=secure_delete(ON)" + extra
	}
	d := &DB{writes: make(chan *write, 256), purge: make(chan struct{}, 1), closed: make(chan struct{})}
	var err error
	if d.write, err = sql.Open("sqlite", dsn("&_txlock=immediate")); err != nil {
		return nil, err
	}
	d.write.SetMaxOpenConns(1)
	if err := migrate(ctx, d.write); err != nil {
		d.write.Close()
		return nil, fmt.Errorf("sqlite: %s: %w", path, err)
	}
	if d.read, err = sql.Open("sqlite", dsn("&_pragma=query_only(ON)")); err != nil {
		d.write.Close()
		return nil, err
	}
	d.read.SetMaxOpenConns(8)
	d.read.SetMaxIdleConns(8)
	if d.writer, err = query.Prepare(ctx, d.write); err == nil {
		d.queries, err = query.Prepare(ctx, d.read)
	}
	if err != nil {
		d.read.Close()
		d.write.Close()
		return nil, fmt.Errorf("sqlite: %s: %w", path, err)
	}
	d.wg.Go(d.commitWrites)
	d.wg.Go(d.purgeLog)
	return d, nil
}

func migrate(ctx context.Context, db *sql.DB) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, dir)
	if err != nil {
		return err
	}
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if current > target {
		return fmt.Errorf("the database is of a later version of Berth (schema %d, this one knows %d)", current, target)
	}
	_, err = p.Up(ctx)
	return err
}

// Close waits for the writes that have begun and closes the file.
func (d *DB) Close() error {
	d.once.Do(func() { close(d.closed) })
	d.wg.Wait()
	_, err := d.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
	return errors.Join(err, d.writer.Close(), d.queries.Close(), d.read.Close(), d.write.Close())
}

// purgeLog empties the write-ahead log soon after a deletion: deleted content is
// overwritten in the database itself, but the log still has it.
func (d *DB) purgeLog() {
	for {
		select {
		case <-d.closed:
			return
		case <-d.purge:
		}
		select {
		case <-d.closed: // Close empties it
			return
		case <-time.After(time.Second): // many deletions share one
		}
		if _, err := d.write.Exec("PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			d.deleted() // a reader was in the way
		}
	}
}

func (d *DB) deleted() {
	select {
	case d.purge <- struct{}{}:
	default:
	}
}

// wrap gives an error of SQLite its identity in the store's terms.
func wrap(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() {
		case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE:
			return fmt.Errorf("%w: %w", store.ErrExists, err)
		}
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

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
