// Package postgres implements store.Store with a PostgreSQL database.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sealed"
	base "github.com/berth-run/berth/store/sql"
)

const (
	// readers is the most concurrent reads; further ones wait.
	readers = 8
	// connectTimeout limits an attempt to connect.
	connectTimeout = 5 * time.Second
)

// Options configure a database. The zero value suits most.
type Options struct {
	// Keys is the path of a file that names the database, so that a server does not use
	// another one by mistake. Former versions stored the keys of rows in it; Open moves them
	// into the database.
	Keys string

	// Key is the key of all servers of the database. Content can be read only with the key
	// that it was written with.
	Key [32]byte

	// Claim makes this DB the only one that claims the database: Open returns ErrClaimed if
	// another one has. A DB that loses its claim refuses writes until it has it again.
	Claim bool

	// Shared is Claim for one of several servers: those with Shared claim the database
	// together. It is refused while a server with Claim has it, and the other way round.
	Shared bool

	// Name names the server in messages of others that want the database.
	Name string

	// Log receives failures of background work; nil discards them.
	Log *slog.Logger

	// Opened is closed after the database, if it was opened.
	Opened io.Closer
}

// ErrClaimed means that another server has claimed the database.
var ErrClaimed = errors.New("another server uses the database")

// A DB is a store.Store in a PostgreSQL database. It
// has one connection for writes, which groups concurrent writes into a transaction, one
// for notifications, and several for reads. DBs of other processes may use the database at
// the same time; they take turns at writing.
type DB struct {
	*base.Store
	core *core
	*watcher

	close func() error // later calls return the result of the first

	scrubbing sync.Mutex
	scrubbed  int64 // keys erased before the last Scrub; guarded by scrubbing
}

var _ store.Watcher = (*DB)(nil)

// A core is the database below a Store. It implements base.Driver.
type core struct {
	conn // of pool

	log    *slog.Logger
	pool   *pgxpool.Pool // for reads
	writer *writer
	keys   *sealed.Keys
	ring   atomic.Pointer[tableRing] // of keys
}

// Statements implements base.Driver.
func (d *core) Statements() base.Statements {
	return base.Statements{
		AppendEvents: `INSERT INTO events (response, sequence_number, data, span, size) VALUES ($1, $2, $3, $4, $5)`,
		Events: `SELECT sequence_number, '', data FROM events
			WHERE response = $1 AND sequence_number >= $2 AND sequence_number <= $3 ORDER BY sequence_number`,
		AddDoomed:    `INSERT INTO doomed (seal) SELECT unnest($1::bigint[]) ON CONFLICT DO NOTHING`,
		RemoveDoomed: `DELETE FROM doomed WHERE seal = ANY ($1)`,
		ManyKeys:     func(keys []int64) any { return keys },
	}
}

// Convert implements base.Driver.
func (d *core) Convert(err error) error { return wrap(err) }

// Name implements base.Driver.
func (d *core) Name() string { return "postgres" }

// Sync implements base.Driver. PostgreSQL syncs each commit; see transact.
func (d *core) Sync() error { return nil }

// ValidURL reports whether a text is the URL of a PostgreSQL database. A password with a character
// that is not percent-encoded makes it invalid: parsers would take the rest for a host or a
// database, which errors name.
func ValidURL(text string) bool {
	if !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		return false
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" && !u.Query().Has("host") || u.Fragment != "" || strings.Count(text, "@") > 1 ||
		u.User == nil && strings.Contains(text, "@") {
		return false
	}
	_, err = pgxpool.ParseConfig(text)
	return err == nil
}

// Open opens the database at a URL ("postgres://user:password@host/database"), and
// creates or updates its tables. It refuses a database of a later version of Berth. The
// password appears in no error and in no log.
func Open(ctx context.Context, at string, opts *Options) (_ *DB, err error) {
	if opts == nil {
		opts = &Options{}
	}
	c := &core{log: cmp.Or(opts.Log, slog.New(slog.DiscardHandler))}
	var opened []func() error
	defer func() {
		if err != nil {
			err = prefixed(err)
			_ = closeAll(opened)
		}
	}()
	config, err := parse(at, opts.Name)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, config.ConnConfig); err != nil {
		return nil, wrap(err)
	}
	if c.writer, err = newWriter(ctx, config.ConnConfig, claimOf(opts), c.log); err != nil {
		return nil, wrap(err)
	}
	opened = append(opened, c.writer.close)
	if c.keys, err = openKeys(ctx, c, opts.Keys, opts.Key); err != nil {
		return nil, wrap(err)
	}
	opened = append(opened, c.keys.Close)
	if c.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("connect for reading: %w", wrap(err))
	}
	opened = append(opened, func() error { c.pool.Close(); return nil })
	c.conn = conn{c.pool}
	d := &DB{core: c}
	if d.Store, err = base.New(ctx, c, c.keys, c.log); err != nil {
		return nil, wrap(err)
	}
	// The server has probably closed the idle connections for reads as well, and the next read with
	// each of them would fail although the server is back.
	d.watcher = newWatcher(config.ConnConfig, c.pool.Reset, c.log)
	opened = append(opened, d.watcher.close, d.Store.Close)
	if opts.Opened != nil {
		opened = slices.Insert(opened, 0, opts.Opened.Close)
	}
	d.close = sync.OnceValue(func() error { return closeAll(opened) })
	return d, nil
}

// parse returns the configuration of connections. Its errors do not contain the URL.
func parse(text, name string) (*pgxpool.Config, error) {
	if !ValidURL(text) {
		return nil, errors.New(
			"the URL is not valid; it must be like postgres://user:password@host:5432/database?sslmode=verify-full, with special characters of the password percent-encoded")
	}
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, errors.New("the URL is not valid")
	}
	config.MaxConns = readers
	c := config.ConnConfig
	if c.ConnectTimeout == 0 || c.ConnectTimeout > connectTimeout {
		c.ConnectTimeout = connectTimeout
	}
	for name, value := range map[string]string{
		"application_name": "berth " + cmp.Or(name, "command"),
		// A server that was paused in a transaction must not hold up the others.
		"idle_in_transaction_session_timeout": "15s",
		"lock_timeout":                        "20s",
		// A server whose network failed must lose its claim soon.
		"tcp_keepalives_idle": "5", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
		"tcp_user_timeout": "20000",
		"timezone":         "UTC",
	} {
		c.RuntimeParams[name] = value
	}
	c.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) {}
	return config, nil
}

// connect opens a connection.
func connect(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	c, err := pgx.ConnectConfig(ctx, config.Copy())
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return c, nil
}

// closeAll calls the functions in reverse order.
func closeAll(fs []func() error) error {
	var errs []error
	for i := len(fs) - 1; i >= 0; i-- {
		errs = append(errs, fs[i]())
	}
	return errors.Join(errs...)
}

// Close waits for the writes and erasures that have started, and closes the connections.
// It may be called again.
func (d *DB) Close() error { return d.close() }
