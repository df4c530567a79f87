// Package sqlite keeps the state of a server in one SQLite file.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	_ "modernc.org/sqlite"

	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sealed"
	"github.com/berth-run/berth/store/sqlite/query"
)

//go:generate go tool -modfile=../../tools/go.mod sqlc generate

const (
	// busyTimeout is how long a write waits for another process, in milliseconds.
	busyTimeout = 10_000
	// readers is how many reads run at once. More wait.
	readers = 8
	// logLimit is how much of the write-ahead log's file stays after a checkpoint,
	// in bytes.
	logLimit = 64 << 20
)

// Options tune a database. The zero value is right for most.
type Options struct {
	// Synchronous is "normal" (the default) or "full". Both lose nothing when the
	// process dies. With normal, a power cut may lose the last moments, and nothing
	// older; full waits for the disk at each commit, which the writes that wait
	// together share.
	Synchronous string

	// Key is the server's: content that was written with it is read with it alone.
	Key [32]byte

	// Log hears what goes wrong in the background; nil is silence.
	Log *slog.Logger

	// Room watches the disk; nil is nothing.
	Room Room
}

// A Room knows how full the volume of the database is, and has a reserve.
type Room interface {
	// Refuse returns an error, which is store.ErrStorage, while the reserve is in use.
	// Then only what frees space or ends something is written.
	Refuse() error
	// MakeRoom gives the reserve up. It reports whether a write that failed for want of
	// space may succeed now.
	MakeRoom() bool
}

// A DB is a store.Store in one file, with a file of keys beside it, in WAL mode: one writer, which gathers
// concurrent writes into one transaction, and many readers. Another process, such
// as the command line, may use the file at the same time.
type DB struct {
	*core
	responses
	files
	containers
	objects
	accounts

	close func() error // the first time; then it returns the same
}

var _ store.Store = (*DB)(nil)

// A core is what all parts of a DB work on.
type core struct {
	path string
	log  *slog.Logger
	room Room // nil is none

	read    *sql.DB
	queries *query.Queries // prepared on read
	writer  *writer
	keys    *sealed.Keys
	eraser  *sealed.Eraser
}

// The parts of a DB, by what they store.
type (
	responses  struct{ *core } // responses, their events, items and runs
	files      struct{ *core } // uploaded files
	containers struct{ *core } // containers and their files
	objects    struct{ *core } // documents
	accounts   struct{ *core } // API keys, what projects have and what they used
)

// Open opens the database in a file, which it makes, readable by its owner alone,
// and brings its tables up to date. Its keys are in the file KeysPath. A file of a later version of Berth is refused.
func Open(ctx context.Context, path string, opts *Options) (_ *DB, err error) {
	if opts == nil {
		opts = &Options{}
	}
	c := &core{path: path, log: cmp.Or(opts.Log, slog.New(slog.DiscardHandler)), room: opts.Room}
	d := &DB{core: c, responses: responses{c}, files: files{c}, containers: containers{c}, objects: objects{c}, accounts: accounts{c}}
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
	if d.keys, err = openKeys(ctx, write, KeysPath(path), opts.Key); err != nil {
		return nil, err
	}
	opened = append(opened, d.keys.Close)
	if d.writer, err = newWriter(ctx, write); err != nil {
		return nil, err
	}
	opened = append(opened, d.writer.close)
	if d.read, err = sql.Open("sqlite", dsn+"&_pragma=query_only(ON)"); err != nil {
		return nil, fmt.Errorf("open for reading: %w", err)
	}
	opened = append(opened, d.read.Close)
	d.read.SetMaxOpenConns(readers)
	d.read.SetMaxIdleConns(readers)
	if d.queries, err = query.Prepare(ctx, d.read); err != nil {
		return nil, err
	}
	opened = append(opened, d.queries.Close)
	if d.eraser, err = sealed.NewEraser(ctx, d.keys, doomed{c}, d.log); err != nil {
		return nil, err
	}
	opened = append(opened, d.eraser.Close, newShrinker(c).close)
	d.close = sync.OnceValue(func() error { return closeAll(opened) })
	return d, nil
}

// KeysPath returns the path of the file with the keys of a database: "x.keys" beside
// "x.db". It may be a link to another volume. Without it the database is of no use;
// with an old copy of both, what has been erased is back.
func KeysPath(path string) string { return strings.TrimSuffix(path, ".db") + ".keys" }

// closeAll calls close functions from the last to the first.
func closeAll(fs []func() error) error {
	var errs []error
	for i := len(fs) - 1; i >= 0; i-- {
		errs = append(errs, fs[i]())
	}
	return errors.Join(errs...)
}

// dataSource is the driver's name of the database, with all that is set on each
// connection.
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
		"auto_vacuum(INCREMENTAL)", // of a new file; it must come before the next one
		"journal_mode(WAL)",
		fmt.Sprintf("journal_size_limit(%d)", logLimit),
		"synchronous(" + synchronous + ")",
		"foreign_keys(ON)",
		"secure_delete(FAST)", // of what is in the clear; see package sealed
		"temp_store(MEMORY)",
	}}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + pragmas.Encode(), nil
}

// create makes the file if there is none, so that it has its mode from the start.
// A file that is there is not even opened: closing it would drop the locks that
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

// Close waits for the writes that have begun, and for what was deleted to be
// erased, and closes the file. It may be called again.
func (d *DB) Close() error { return d.close() }

// openKeys opens the keys of a database, which must be those that it was written with.
func openKeys(ctx context.Context, db *sql.DB, path string, root [32]byte) (_ *sealed.Keys, err error) {
	keys, err := sealed.OpenKeys(path, root)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, keys.Close())
		}
	}()
	q := query.New(db)
	mark, err := q.Mark(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return keys, q.SetMark(ctx, keys.Mark())
	}
	if err != nil {
		return nil, err
	}
	return keys, keys.Check(mark)
}

// start returns the created_at after which a page of a list begins, given how to
// look that of page.After up. Lists are in the order of (created_at, id).
func start(page store.Page, createdAt func() (int64, error)) (int64, error) {
	switch {
	case page.After != "":
		return createdAt()
	case page.Ascending:
		return math.MinInt64, nil
	default:
		return math.MaxInt64, nil
	}
}
