package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berth-run/berth"
	base "github.com/berth-run/berth/store/sql"
)

// batchTimeout limits the time of a transaction. When it ends, the connection is closed.
const batchTimeout = time.Minute

// A writer does all writes of this process on one connection. Writers of other processes take
// turns with it, so that a write sees the state that the former one left.
type writer struct {
	*base.Writer

	config *pgx.ConnConfig
	claim  string // the statement that claims the database; "" for none
	log    *slog.Logger
	id     string // identifies its rows of the table writers

	conn  *pgx.Conn // nil when it is lost; owned by save, as are the next two
	batch int64     // the number of the last transaction
	down  bool      // the database could not be reached for a while
}

// newWriter connects a writer. If it is to claim the database, it waits a moment for a
// former process to be gone.
func newWriter(ctx context.Context, config *pgx.ConnConfig, claim string, log *slog.Logger) (*writer, error) {
	w := &writer{config: config, claim: claim, log: log, id: berth.NewID("writer_")}
	if err := w.reconnect(ctx, claimTimeout); err != nil {
		return nil, err
	}
	if _, err := w.conn.Exec(ctx, "DELETE FROM writers WHERE at < now() - interval '7 days'"); err != nil {
		return nil, errors.Join(fmt.Errorf("forget former writers: %w", err), w.conn.Close(ctx))
	}
	w.Writer = base.NewWriter(w.save)
	return w, nil
}

// close waits for the writes that were sent. Later ones get ErrClosed.
func (w *writer) close() error {
	w.Close()
	if w.conn != nil {
		w.disconnect()
	}
	return nil
}

// Update implements base.Driver.
func (d *core) Update(ctx context.Context, do func(context.Context, *base.Tx) error) error {
	return wrap(d.writer.Update(ctx, do))
}

// UpdateWithReserve implements base.Driver. The disk is that of the database's server.
func (d *core) UpdateWithReserve(ctx context.Context, do func(context.Context, *base.Tx) error) error {
	return d.Update(ctx, do)
}

// save runs a batch in one transaction. If that fails as a whole, for example because
// one write fills the disk, each write gets a transaction of its own.
func (w *writer) save(batch []*base.Write) {
	err := w.persist(batch)
	if err == nil {
		return
	}
	for _, one := range batch {
		if len(batch) > 1 && !unavailable(err) {
			err = w.persist([]*base.Write{one})
		}
		if err != nil {
			one.Err = wrap(err)
		}
	}
}

// transact runs writes in a transaction. It sets the error of each write that failed
// and was undone alone. If it returns an error other than a commitError, nothing was
// saved.
func (w *writer) transact(ctx context.Context, batch []*base.Write) error {
	timeout := batchTimeout
	if batch[0].Alone {
		timeout = rotateTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	// With synchronous_commit, a commit survives a failure of the database's
	// machine; deletions and the keys that they erase must agree.
	if err := w.statement(ctx, "BEGIN; SET LOCAL synchronous_commit = on; "+lockStatement); err != nil {
		w.rollback(ctx)
		return err
	}
	t := &base.Tx{Conn: conn{w.conn}}
	if err := w.runAll(ctx, t, batch); err != nil {
		w.rollback(ctx)
		return err
	}
	w.batch++
	end := &pgx.Batch{}
	end.Queue(saveBatch, w.id, w.batch)
	if len(t.Touched) > 0 {
		end.Queue("SELECT pg_notify($1, $2)", channel, payload(t.Touched))
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
func (w *writer) runAll(ctx context.Context, t *base.Tx, batch []*base.Write) error {
	next := "SAVEPOINT one"
	undone := true
	for _, one := range batch {
		if one.Err = context.Cause(one.Context); one.Err != nil {
			continue
		}
		if len(batch) == 1 {
			return one.Do(ctx, t)
		}
		if err := w.statement(ctx, next); err != nil {
			return err
		}
		touched := len(t.Touched)
		next, undone = "RELEASE one; SAVEPOINT one", true
		if one.Err = one.Do(ctx, t); one.Err != nil {
			if w.conn.IsClosed() || unavailable(one.Err) {
				return one.Err
			}
			t.Touched = t.Touched[:touched]
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
