package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/berth-run/berth/store"
	base "github.com/berth-run/berth/store/sql"
)

// The statements around writes.
const (
	begin     = "BEGIN IMMEDIATE"
	commit    = "COMMIT"
	rollback  = "ROLLBACK"
	savepoint = "SAVEPOINT one"
	release   = "RELEASE one"
	undo      = "ROLLBACK TO one"
)

// A writer does all writes of this process on one connection.
type writer struct {
	*base.Writer

	mu       sync.Mutex // held while conn is in use
	conn     *sql.Conn
	prepared *statements // on conn
}

// newWriter uses the only connection of db.
func newWriter(ctx context.Context, db *sql.DB) (*writer, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	w := &writer{conn: conn, prepared: newStatements(conn)}
	w.Writer = base.NewWriter(func(batch []*base.Write) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.save(batch)
	})
	return w, nil
}

// close waits for the writes that were sent. Later ones get ErrClosed.
func (w *writer) close() error {
	w.Close()
	return errors.Join(w.prepared.Close(), w.conn.Close())
}

// Update implements base.Driver.
func (d *core) Update(ctx context.Context, do func(context.Context, *base.Tx) error) error {
	if d.room != nil {
		if err := d.room.Refuse(); err != nil {
			return err
		}
	}
	return d.Convert(d.writer.Update(ctx, do))
}

// UpdateWithReserve implements base.Driver.
func (d *core) UpdateWithReserve(ctx context.Context, do func(context.Context, *base.Tx) error) error {
	err := d.Convert(d.writer.Update(ctx, do))
	if d.room != nil && errors.Is(err, store.ErrStorage) && d.room.MakeRoom() {
		err = d.Convert(d.writer.Update(ctx, do))
	}
	return err
}

// save runs a batch in one transaction. If that fails as a whole, for example because
// one write fills the disk, each write gets a transaction of its own.
func (w *writer) save(batch []*base.Write) {
	err := w.transact(batch)
	if err == nil {
		return
	}
	_, notStarted := errors.AsType[beginError](err)
	for _, one := range batch {
		if len(batch) > 1 && !notStarted {
			err = w.transact([]*base.Write{one})
			_, notStarted = errors.AsType[beginError](err)
		}
		if err != nil {
			one.Err = err
		}
	}
}

// A beginError means that no transaction could start. A retry would only wait again.
type beginError struct{ error }

func (e beginError) Unwrap() error { return e.error }

// transact runs writes in a transaction. It sets the error of each write that failed
// and was undone alone. If it returns an error, nothing was saved.
func (w *writer) transact(batch []*base.Write) (err error) {
	ctx := context.Background()
	if _, err := w.prepared.Exec(ctx, begin); err != nil {
		return beginError{err}
	}
	defer func() {
		if err != nil {
			// SQLite rolls back after some failures itself; then this does nothing.
			_, _ = w.prepared.Exec(ctx, rollback)
		}
	}()
	tx := &base.Tx{Conn: w.prepared}
	for _, one := range batch {
		if one.Err = context.Cause(one.Context); one.Err != nil {
			continue
		}
		if len(batch) == 1 {
			if err := one.Do(ctx, tx); err != nil {
				return err
			}
			break
		}
		if _, err := w.prepared.Exec(ctx, savepoint); err != nil {
			return fmt.Errorf("savepoint: %w", err)
		}
		if one.Err = one.Do(ctx, tx); one.Err != nil {
			if _, err := w.prepared.Exec(ctx, undo); err != nil {
				return fmt.Errorf("%w, and then %w", one.Err, err)
			}
		}
		if _, err := w.prepared.Exec(ctx, release); err != nil {
			return fmt.Errorf("release savepoint: %w", err)
		}
	}
	if _, err := w.prepared.Exec(ctx, commit); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// alone runs f on the connection, between transactions.
func (w *writer) alone(f func(*sql.Conn) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return f(w.conn)
}
