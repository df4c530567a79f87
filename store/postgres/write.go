package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store/postgres/query"
)

// maxBatch is the most writes in one transaction.
const maxBatch = 256

// batchTimeout limits the time of a transaction. When it ends, the connection is closed.
const batchTimeout = time.Minute

// A transaction is what a write sees of the database.
type transaction struct {
	*query.Queries
	touched []string // ids of changed rows, for the notification
}

// touch records the ids of rows that a write changes.
func (t *transaction) touch(ids ...string) { t.touched = append(t.touched, ids...) }

// A write waits for its transaction.
type write struct {
	ctx  context.Context
	do   func(ctx context.Context, q *transaction) error
	err  error
	done chan struct{}
}

// A writer does all writes of this process on one connection. While it commits, further
// writes queue up for the next transaction. Writers of other processes take turns with
// it, so that a write sees the state that the former one left.
type writer struct {
	config *pgx.ConnConfig
	claim  string // the statement that claims the database; "" for none
	log    *slog.Logger
	id     string // identifies its rows of the table writers

	conn  *pgx.Conn // nil when it is lost; owned by run, as are the next two
	batch int64     // the number of the last transaction
	down  bool      // the database could not be reached for a while

	gate   sync.RWMutex // held for reading to send to writes, for writing to close it
	writes chan *write
	closed bool
	ended  chan struct{}
}

// newWriter connects a writer. If it is to claim the database, it waits a moment for a
// former process to be gone.
func newWriter(ctx context.Context, config *pgx.ConnConfig, claim string, log *slog.Logger) (*writer, error) {
	w := &writer{config: config, claim: claim, log: log, id: berth.NewID("writer_"), writes: make(chan *write,
		maxBatch), ended: make(chan struct{})}
	if err := w.reconnect(ctx, claimTimeout); err != nil {
		return nil, err
	}
	if err := query.New(w.conn).ForgetWriters(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("forget former writers: %w", err), w.conn.Close(ctx))
	}
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
	if w.conn != nil {
		w.disconnect()
	}
	return nil
}

// update runs do in a transaction, which it may share with other writes. When it
// returns nil, the transaction is committed. do may run more than once; the last call
// counts.
func (d *core) update(ctx context.Context, do func(context.Context, *transaction) error) error {
	return wrap(d.writer.update(ctx, do))
}

func (w *writer) update(ctx context.Context, do func(context.Context, *transaction) error) error {
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
		w.save(batch)
		for _, one := range batch {
			close(one.done)
		}
		clear(batch)
	}
}

// save runs a batch in one transaction. If that fails as a whole, for example because
// one write fills the disk, each write gets a transaction of its own.
func (w *writer) save(batch []*write) {
	err := w.persist(batch)
	if err == nil {
		return
	}
	for _, one := range batch {
		if len(batch) > 1 && !unavailable(err) {
			err = w.persist([]*write{one})
		}
		if err != nil {
			one.err = wrap(err)
		}
	}
}

// transact runs writes in a transaction. It sets the error of each write that failed
// and was undone alone. If it returns an error other than a commitError, nothing was
// saved.
func (w *writer) transact(ctx context.Context, batch []*write) error {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	// With synchronous_commit, what is committed survives a failure of the database's
	// machine; deletions and the keys that they erase must agree.
	if err := w.statement(ctx, "BEGIN; SET LOCAL synchronous_commit = on; "+lockStatement); err != nil {
		w.rollback(ctx)
		return err
	}
	t := &transaction{Queries: query.New(w.conn)}
	if err := w.runAll(ctx, t, batch); err != nil {
		w.rollback(ctx)
		return err
	}
	w.batch++
	end := &pgx.Batch{}
	end.Queue(saveBatch, w.id, w.batch)
	if len(t.touched) > 0 {
		end.Queue("SELECT pg_notify($1, $2)", channel, payload(t.touched))
	}
	if err := w.conn.SendBatch(ctx, end).Close(); err != nil {
		w.rollback(ctx)
		return fmt.Errorf("record commit: %w", err)
	}
	done, err := w.conn.Exec(ctx, "COMMIT")
	if err == nil && done.String() != "COMMIT" {
		err = fmt.Errorf("the database answered %s", done) // it ended the transaction for an earlier error
	}
	if err != nil {
		return commitError{fmt.Errorf("commit: %w", err)}
	}
	return nil
}

// saveBatch records the last transaction of a writer; see lastBatch.
const saveBatch = "INSERT INTO writers (id, batch, at) VALUES ($1, $2, now()) ON CONFLICT (id) DO UPDATE SET batch = excluded.batch, at = excluded.at"

// lockStatement waits for the transaction of another writer.
var lockStatement = fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", int64(lockWrite))

// rollback ends a transaction that failed. If it cannot, the connection is lost.
func (w *writer) rollback(ctx context.Context) {
	if w.conn.IsClosed() {
		return
	}
	if _, err := w.conn.Exec(ctx, "ROLLBACK"); err != nil {
		w.disconnect()
	}
}

// runAll runs writes, each with a savepoint if there are several.
func (w *writer) runAll(ctx context.Context, t *transaction, batch []*write) error {
	next := "SAVEPOINT one"
	undone := true
	for _, one := range batch {
		if one.err = context.Cause(one.ctx); one.err != nil {
			continue
		}
		if len(batch) == 1 {
			return one.do(ctx, t)
		}
		if err := w.statement(ctx, next); err != nil {
			return err
		}
		touched := len(t.touched)
		next, undone = "RELEASE one; SAVEPOINT one", true
		if one.err = one.do(ctx, t); one.err != nil {
			if w.conn.IsClosed() || unavailable(one.err) {
				return one.err
			}
			t.touched = t.touched[:touched]
			next, undone = "ROLLBACK TO one; RELEASE one; SAVEPOINT one", false
		}
	}
	if undone {
		return nil
	}
	return w.statement(ctx, "ROLLBACK TO one")
}

func (w *writer) statement(ctx context.Context, text string) error {
	if _, err := w.conn.PgConn().Exec(ctx, text).ReadAll(); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return nil
}
