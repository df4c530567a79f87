// Package sqlite implements store.Store with one SQLite file.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	_ "modernc.org/sqlite"

	"github.com/berth-run/berth/store/sealed"
	base "github.com/berth-run/berth/store/sql"
)

const (
	// busyTimeout is how long a write waits for another process's lock, in
	// milliseconds.
	busyTimeout = 10_000
	// readers is the most concurrent reads; further ones wait.
	readers = 8
	// logLimit is the size of the write-ahead log's file after a checkpoint, in bytes.
	logLimit = 64 << 20
)

// Options configure a database. The zero value suits most.
type Options struct {
	// Synchronous is "normal" (the default) or "full". Both lose nothing when the
	// process dies. With normal, a power failure may lose the last moments, but
	// nothing older. With full, each commit waits for the disk; concurrent writes
	// share a commit.
	Synchronous string

	// Key is the server's key. Content can be read only with the key that it was
	// written with.
	Key [32]byte

	// Log receives failures of background work; nil discards them.
	Log *slog.Logger

	// Opened is closed after the database, if it was opened.
	Opened io.Closer

	// Room watches free disk space; nil disables that.
	Room Room
}

// A Room measures the free space of the database's volume and holds a reserve.
type Room interface {
	// Refuse returns an error, which is store.ErrStorage, while the reserve is in use.
	// Then the database accepts only writes that free space or record an end.
	Refuse() error
	// MakeRoom releases the reserve. It reports whether a write that failed for lack
	// of space may succeed now.
	MakeRoom() bool
}

// A DB is a store.Store in one file in WAL mode, with a file of keys beside it. It has
// one writer, which groups concurrent writes into a transaction, and several readers.
// Other processes, such as the command line, may use the file at the same time.
type DB struct {
	*base.Store
	core *core

	close func() error // later calls return the result of the first
}

// A core is the database below a Store. It implements base.Driver.
type core struct {
	*statements // for reads

	path   string
	log    *slog.Logger
	room   Room // may be nil
	read   *sql.DB
	writer *writer
	keys   *sealed.Keys
}

// addDoomed and removeDoomed write the list of keys to erase.
const (
	addDoomed    = `INSERT OR IGNORE INTO doomed (seal) VALUES ($1)`
	removeDoomed = `DELETE FROM doomed WHERE seal = $1`
)

// Statements implements base.Driver. The type of events is that of rows from before version 66edd30.
func (d *core) Statements() base.Statements {
	return base.Statements{
		AppendEvents: `INSERT INTO events (response, sequence_number, type, data, span, size)
			VALUES ($1, $2, '', $3, $4, $5)`,
		Events: `SELECT sequence_number, type, data FROM events
			WHERE response = $1 AND sequence_number >= $2 AND sequence_number <= $3 ORDER BY sequence_number`,
		AddDoomed: addDoomed, RemoveDoomed: removeDoomed,
	}
}

// Name implements base.Driver.
func (d *core) Name() string { return "sqlite: " + d.path }

// Open opens the database in a file, or creates it with mode 0600, and updates its
// schema. Its keys are in the file KeysPath. Open refuses a file of a later version of
// Berth.
func Open(ctx context.Context, path string, opts *Options) (_ *DB, err error) {
	if opts == nil {
		opts = &Options{}
	}
	c := &core{path: path, log: cmp.Or(opts.Log, slog.New(slog.DiscardHandler)), room: opts.Room}
	var opened []func() error
	defer func() {
		if err != nil {
			err = fmt.Errorf("sqlite: %s: %w", path, explain(err))
			_ = closeAll(opened)
		}
	}()
	dsn, err := dataSource(path, opts.Synchronous)
	if err != nil {
		return nil, err
	}
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := create(path); err != nil {
		return nil, err
	}
	write, err := sql.Open("sqlite", dsn+"&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("open for writing: %w", err)
	}
	opened = append(opened, write.Close)
	write.SetMaxOpenConns(1)
	if err := migrate(ctx, write); err != nil {
		return nil, err
	}
	if c.keys, err = openKeys(ctx, write, KeysPath(path), opts.Key); err != nil {
		return nil, err
	}
	opened = append(opened, c.keys.Close)
	if c.writer, err = newWriter(ctx, write); err != nil {
		return nil, err
	}
	opened = append(opened, c.writer.close)
	if c.read, err = sql.Open("sqlite", dsn+"&_pragma=query_only(ON)"); err != nil {
		return nil, fmt.Errorf("open for reading: %w", err)
	}
	opened = append(opened, c.read.Close)
	c.read.SetMaxOpenConns(readers)
	c.read.SetMaxIdleConns(readers)
	c.statements = newStatements(c.read)
	opened = append(opened, c.statements.Close)
	d := &DB{core: c}
	if d.Store, err = base.New(ctx, c, c.keys, c.log); err != nil {
		return nil, err
	}
	opened = append(opened, d.Store.Close, newShrinker(c).close)
	if opts.Opened != nil {
		opened = slices.Insert(opened, 0, opts.Opened.Close)
	}
	d.close = sync.OnceValue(func() error { return closeAll(opened) })
	return d, nil
}

// KeysPath returns the path of the file with a database's keys: "x.keys" for "x.db".
// It may be a link to another volume. The database is useless without it, and an old
// copy of both restores erased content.
func KeysPath(path string) string { return strings.TrimSuffix(path, ".db") + ".keys" }

// closeAll calls the functions in reverse order.
func closeAll(fs []func() error) error {
	var errs []error
	for i := len(fs) - 1; i >= 0; i-- {
		errs = append(errs, fs[i]())
	}
	return errors.Join(errs...)
}

// dataSource returns the data source name, with the pragmas of each connection.
func dataSource(path, synchronous string) (string, error) {
	switch synchronous {
	case "":
		synchronous = "normal"
	case "normal", "full":
	default:
		return "", fmt.Errorf("synchronous must be normal or full, not %q", synchronous)
	}
	pragmas := url.Values{"_pragma": {
		fmt.Sprintf("busy_timeout(%d)", busyTimeout),
		"auto_vacuum(INCREMENTAL)", // for a new file; must precede journal_mode
		"journal_mode(WAL)",
		fmt.Sprintf("journal_size_limit(%d)", logLimit),
		"synchronous(" + synchronous + ")",
		"foreign_keys(ON)",
		"secure_delete(FAST)", // for unsealed columns; see package sealed
		"temp_store(MEMORY)",
	}}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + pragmas.Encode(), nil
}

// create creates the file if it does not exist, so that it has its mode from the
// start. It does not open an existing file: closing it would drop the locks that
// SQLite holds on it in this process.
func create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// Close waits for the writes and erasures that have started, and closes the file. It
// may be called again.
func (d *DB) Close() error { return d.close() }

// openKeys opens the keys of a database, and checks that it was written with them.
func openKeys(ctx context.Context, db *sql.DB, path string, root [32]byte) (*sealed.Keys, error) {
	var mark []byte
	err := db.QueryRowContext(ctx, "SELECT mark FROM ring").Scan(&mark)
	if errors.Is(err, sql.ErrNoRows) {
		ring, err := sealed.OpenFile(path)
		if err != nil {
			return nil, err
		}
		keys := sealed.NewKeys(ring, root)
		if _, err := db.ExecContext(ctx, "INSERT INTO ring (mark) VALUES (?)", keys.Mark()); err != nil {
			return nil, errors.Join(fmt.Errorf("write the mark of the keys: %w", err), keys.Close())
		}
		return keys, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the mark of the keys: %w", err)
	}
	keys, err := sealed.OpenMarked(path, root, mark)
	if err != nil {
		return nil, fmt.Errorf("open the keys of rows: %w", err)
	}
	if err := refuseUnsealed(ctx, db, keys); err != nil {
		return nil, errors.Join(err, keys.Close())
	}
	return keys, nil
}

// refuseUnsealed makes the keys of a database of a former version strict, once it has no unsealed row any more.
func refuseUnsealed(ctx context.Context, db *sql.DB, keys *sealed.Keys) error {
	if keys.Strict() {
		return nil
	}
	var unsealed bool
	err := db.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM responses WHERE seal = 0 AND NOT deleted)
		OR EXISTS (SELECT 1 FROM files WHERE seal = 0) OR EXISTS (SELECT 1 FROM containers WHERE seal = 0)
		OR EXISTS (SELECT 1 FROM objects WHERE seal = 0)`).Scan(&unsealed)
	if err != nil {
		return fmt.Errorf("look for unsealed rows: %w", err)
	}
	if unsealed {
		return nil
	}
	if _, err := db.ExecContext(ctx, "UPDATE ring SET mark = ?", keys.Seal()); err != nil {
		return fmt.Errorf("write the mark of the keys: %w", err)
	}
	return nil
}
