// Package sql implements store.Store with SQL. Packages sqlite and postgres connect the databases.
//
// A statement is written once, in the SQL that both databases understand: parameters are $1, $2, …,
// a boolean column is tested with NOT, and a cast names PostgreSQL's type. {now} stands for the time
// by the database's clock, in milliseconds since 1970. A driver translates what its database reads
// differently. Statements that differ in substance, for example because one database has a column
// more, are in Statements.
package sql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sealed"
)

// A Driver is what a Store needs of a database.
type Driver interface {
	Reader // of committed rows
	// Update runs do in a transaction, which it may share with other writes. When it returns
	// nil, the transaction is committed. do may run more than once; the last call counts. The
	// error is one of the store.
	Update(ctx context.Context, do func(context.Context, *Tx) error) error
	// UpdateWithReserve is Update for writes that free space or record an end. On a full disk
	// it uses the reserve.
	UpdateWithReserve(ctx context.Context, do func(context.Context, *Tx) error) error
	// Convert converts an error of the database to one of the store.
	Convert(err error) error
	// Name names the package and the database in errors.
	Name() string
	// Statements returns the statements that are the database's own.
	Statements() Statements
	// Sync makes sure that committed writes survive a failure of the machine.
	Sync() error
}

// Statements are those that databases do not share.
type Statements struct {
	// AppendEvents inserts a row of events: response, sequence number, data, span, size.
	AppendEvents string
	// Events reads the rows of a response from one sequence number to another, in order: the
	// number, the type and the data. The type is empty unless the row has a single event, as
	// former versions wrote it.
	Events string
	// AddDoomed and RemoveDoomed write the list of keys to erase. Their parameter is a key
	// or, if ManyKeys is set, what it returns for all keys.
	AddDoomed, RemoveDoomed string
	ManyKeys                func(keys []int64) any
}

// A Store implements store.Store and store.Members.
type Store struct {
	*core
	responses
	files
	containers
	objects
	accounts
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Members = (*Store)(nil)
)

// A core is shared by all parts of a Store.
type core struct {
	driver Driver
	own    Statements
	keys   *sealed.Keys
	eraser *sealed.Eraser
}

// The parts of a Store, by content.
type (
	responses  struct{ *core } // responses, their events, items and runs
	files      struct{ *core } // uploaded files
	containers struct{ *core } // containers and their files
	objects    struct{ *core } // documents
	accounts   struct{ *core } // API keys, projects and their usage, members
)

// New returns a store in a database whose schema is up to date. It erases the keys that a former
// process was to erase.
func New(ctx context.Context, driver Driver, keys *sealed.Keys, log *slog.Logger) (*Store, error) {
	c := &core{driver: driver, own: driver.Statements(), keys: keys}
	var err error
	if c.eraser, err = sealed.NewEraser(ctx, keys, doomed{c}, log); err != nil {
		return nil, err
	}
	return &Store{c, responses{c}, files{c}, containers{c}, objects{c}, accounts{c}}, nil
}

// Close waits for the erasures that have started. Later ones fail. The driver must be closed after it.
func (s *Store) Close() error { return s.eraser.Close() }

// read reads the only row of a result of what is committed.
func (c *core) read(ctx context.Context, text string, args in, into ...any) error {
	return c.driver.Convert(Read(ctx, c.driver, text, args, into...))
}

// damaged wraps an error of opening or decoding stored content with its location.
func (c *core) damaged(what string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return store.ErrNotFound
	}
	return fmt.Errorf("%s: %s%w", c.driver.Name(), what, err)
}

// start returns the created_at after which a page starts, in the order of (created_at, id). text
// reads that of page.After.
func (c *core) start(ctx context.Context, text string, p any, page store.Page) (createdAt int64, err error) {
	switch {
	case page.After != "":
		err = c.read(ctx, text, in{page.After, p}, &createdAt)
		return createdAt, err
	case page.Ascending:
		return math.MinInt64, nil
	default:
		return math.MaxInt64, nil
	}
}
