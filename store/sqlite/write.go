package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite/query"
)

// maxBatch is the most writes in one transaction.
const maxBatch = 256

// The statements around writes.
const (
	begin     = "BEGIN IMMEDIATE"
	commit    = "COMMIT"
	rollback  = "ROLLBACK"
	savepoint = "SAVEPOINT one"
	release   = "RELEASE one"
	undo      = "ROLLBACK TO one"
)

// A write waits for its transaction.
type write struct {
	ctx  context.Context
	do   func(ctx context.Context, q *query.Queries) error
	err  error
	done chan struct{}
}

// A writer does all writes of this process on one connection. While it commits,
// further writes queue up for the next transaction.
type writer struct {
	mu       sync.Mutex // held while conn is in use
	conn     *sql.Conn
	prepared *statements // on conn
	queries  *query.Queries

	gate   sync.RWMutex // held for reading to send to writes, for writing to close it
	writes chan *write
	closed bool
	ended  chan struct{}
}

// newWriter uses the only connection of db.
func newWriter(ctx context.Context, db *sql.DB) (*writer, error) {
	w := &writer{writes: make(chan *write, maxBatch), ended: make(chan struct{})}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	w.conn = conn
	w.prepared = newStatements(w.conn)
	w.queries = query.New(w.prepared)
	go w.run()
	return w, nil
}

// close waits for the writes that were sent. Later ones get errClosed.
func (w *writer) close() error {
	w.gate.Lock()
	w.closed = true
	close(w.writes)
	w.gate.Unlock()
	<-w.ended
	return errors.Join(w.prepared.Close(), w.conn.Close())
}

// update runs do in a transaction, which it may share with other writes. When it
// returns nil, the transaction is committed. do may run more than once; the last call
// counts.
func (d *core) update(ctx context.Context, do func(context.Context, *query.Queries) error) error {
	if d.room != nil {
		if err := d.room.Refuse(); err != nil {
			return err
		}
	}
	return d.wrap(d.writer.update(ctx, do))
}

// settle is update for writes that free space or record an end. On a full disk it uses
// the reserve.
func (d *core) settle(ctx context.Context, do func(context.Context, *query.Queries) error) error {
	err := d.wrap(d.writer.update(ctx, do))
	if d.room != nil && errors.Is(err, store.ErrStorage) && d.room.MakeRoom() {
		err = d.wrap(d.writer.update(ctx, do))
	}
	return err
}

func (w *writer) update(ctx context.Context, do func(context.Context, *query.Queries) error) error {
	one := &write{ctx: ctx, do: do, done: make(chan struct{})}
	if err := w.send(one); err != nil {
		return err
	}
	<-one.done // even if ctx ends: the caller must learn whether it was saved
	return one.err
}

func (w *writer) send(one *write) error {
	w.gate.RLock()
	defer w.gate.RUnlock()
	if w.closed {
		return errClosed
	}
	select {
	case w.writes <- one:
		return nil
	case <-one.ctx.Done():
		return context.Cause(one.ctx)
	}
}

// run executes the queued writes, one transaction at a time.
func (w *writer) run() {
	defer close(w.ended)
	var batch []*write
	for one := range w.writes {
		batch = append(batch[:0], one)
		for more := true; more && len(batch) < maxBatch; {
			select {
			case one, ok := <-w.writes:
				if more = ok; ok {
					batch = append(batch, one)
				}
			default:
				more = false
			}
		}
		w.mu.Lock()
		w.save(batch)
		w.mu.Unlock()
		for _, one := range batch {
			close(one.done)
		}
		clear(batch)
	}
}

// save runs a batch in one transaction. If that fails as a whole, for example because
// one write fills the disk, each write gets a transaction of its own.
func (w *writer) save(batch []*write) {
	err := w.transact(batch)
	if err == nil {
		return
	}
	_, notStarted := errors.AsType[beginError](err)
	for _, one := range batch {
		if len(batch) > 1 && !notStarted {
			err = w.transact([]*write{one})
			_, notStarted = errors.AsType[beginError](err)
		}
		if err != nil {
			one.err = err
		}
	}
}

// A beginError means that no transaction could start. A retry would only wait again.
type beginError struct{ error }

func (e beginError) Unwrap() error { return e.error }

// transact runs writes in a transaction. It sets the error of each write that failed
// and was undone alone. If it returns an error, nothing was saved.
func (w *writer) transact(batch []*write) (err error) {
	ctx := context.Background()
	if _, err := w.prepared.ExecContext(ctx, begin); err != nil {
		return beginError{err}
	}
	defer func() {
		if err != nil {
			// SQLite rolls back after some failures itself; then this does nothing.
			_, _ = w.prepared.ExecContext(ctx, rollback)
		}
	}()
	for _, one := range batch {
		if one.err = context.Cause(one.ctx); one.err != nil {
			continue
		}
		if len(batch) == 1 {
			if err := one.do(ctx, w.queries); err != nil {
				return err
			}
			break
		}
		if _, err := w.prepared.ExecContext(ctx, savepoint); err != nil {
			return fmt.Errorf("savepoint: %w", err)
		}
		if one.err = one.do(ctx, w.queries); one.err != nil {
			if _, err := w.prepared.ExecContext(ctx, undo); err != nil {
				return fmt.Errorf("%w, and then %w", one.err, err)
			}
		}
		if _, err := w.prepared.ExecContext(ctx, release); err != nil {
			return fmt.Errorf("release savepoint: %w", err)
		}
	}
	if _, err := w.prepared.ExecContext(ctx, commit); err != nil {
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
