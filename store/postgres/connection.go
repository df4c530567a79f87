package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/store"
	base "github.com/berth-run/berth/store/sql"
)

const (
	// patience is how long a batch waits for a database that was lost just now. Later
	// batches fail immediately, until it is back.
	patience = 5 * time.Second
	// lostMost is how many connections in a row a batch may lose: a database that is stopped ends each as it finds it.
	lostMost = 5
	// claimTimeout is how long a server that starts waits for the claim: the database
	// may not have noticed yet that a killed server is gone.
	claimTimeout = 5 * time.Second
	// resolveTimeout limits the time to learn the outcome of a commit.
	resolveTimeout = 20 * time.Second
)

// A commitError means that the connection was lost during a commit, or that the database
// refused it.
type commitError struct{ error }

func (e commitError) Unwrap() error { return e.error }

// persist runs a batch in a transaction, if necessary on a new connection. If it returns
// an error, nothing was saved, except that it is unknown after errUnknown.
func (w *writer) persist(batch []*base.Write) error {
	ctx := context.Background()
	for n := 1; ; n++ {
		if w.conn == nil {
			wait := patience
			if w.down {
				wait = 0
			}
			if err := w.reconnect(ctx, wait); err != nil {
				w.setDown(err)
				return err
			}
		}
		err := w.transact(ctx, batch)
		if err == nil {
			w.setUp()
			return nil
		}
		lost := w.conn == nil || w.conn.IsClosed()
		if lost {
			w.disconnect()
		}
		if _, commit := errors.AsType[commitError](err); commit && lost {
			saved, err := w.resolve(ctx, err)
			if err != nil || saved {
				return err
			}
		}
		if !lost || n == lostMost {
			return err
		}
	}
}

// resolve reports whether the last transaction was saved, whose commit lost its
// connection. The database may still be working on that commit: the lock waits for its
// end.
func (w *writer) resolve(ctx context.Context, cause error) (saved bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	for {
		last, err := w.lastBatch(ctx)
		if err == nil {
			w.setUp()
			return last == w.batch, nil
		}
		if w.conn != nil {
			w.disconnect()
		}
		if backoff.Sleep(ctx, retryPause) != nil {
			w.setDown(err)
			return false, fmt.Errorf("%w: it is not known whether the last writes were saved: %w", store.ErrUnavailable,
				cause)
		}
	}
}

func (w *writer) lastBatch(ctx context.Context) (last int64, err error) {
	if err := w.reconnect(ctx, patience); err != nil {
		return 0, err
	}
	err = pgx.BeginFunc(ctx, w.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockStatement); err != nil {
			return fmt.Errorf("wait for the last transaction: %w", err)
		}
		err = tx.QueryRow(ctx, "SELECT batch FROM writers WHERE id = $1", w.id).Scan(&last)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the last transaction: %w", err)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("look for the last transaction: %w", err)
	}
	return last, nil
}

// retryPause is the time between attempts to connect.
const retryPause = 200 * time.Millisecond

// reconnect connects, and claims the database if the writer is to. It tries for a while.
// The claim belongs to the connection for writes: without the claim nothing is written.
func (w *writer) reconnect(ctx context.Context, wait time.Duration) error {
	for end := time.Now().Add(wait); ; {
		err := w.connect(ctx)
		if err == nil || !time.Now().Before(end) || !errors.Is(err, ErrClaimed) && !unavailable(err) {
			return err
		}
		if err := backoff.Sleep(ctx, retryPause); err != nil {
			return err
		}
	}
}

func (w *writer) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*connectTimeout)
	defer cancel()
	c, err := connect(ctx, w.config)
	if err != nil {
		return err
	}
	if w.claim != "" {
		if err := claim(ctx, c, w.claim); err != nil {
			return errors.Join(err, c.Close(ctx))
		}
	}
	w.conn = c
	return nil
}

// claimOf returns the statement that claims the database, or "".
func claimOf(opts *Options) string {
	switch {
	case opts.Shared:
		return "SELECT pg_try_advisory_lock_shared($1)"
	case opts.Claim:
		return "SELECT pg_try_advisory_lock($1)"
	}
	return ""
}

// claim takes the lock of the servers that claim the database.
func claim(ctx context.Context, c *pgx.Conn, statement string) error {
	var got bool
	if err := c.QueryRow(ctx, statement, int64(lockClaim)).Scan(&got); err != nil {
		return fmt.Errorf("claim the database: %w", err)
	}
	if got {
		return nil
	}
	return fmt.Errorf("%w: %w (%s); stop it first, or give this server a database of its own", store.ErrUnavailable,
		ErrClaimed, holder(ctx, c))
}

// holder returns the name of the server that has the claim, or "" if none has.
func holder(ctx context.Context, c *pgx.Conn) (who string) {
	err := c.QueryRow(ctx, `SELECT coalesce(a.application_name || coalesce(' at ' || host(a.client_addr), ''), '') FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (l.classid::bigint << 32 | l.objid::bigint) = $1`, int64(lockClaim)).Scan(&who)
	if err != nil {
		return ""
	}
	return who
}

// disconnect closes the connection.
func (w *writer) disconnect() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.conn.Close(ctx) // it is broken, or its transactions have ended
	w.conn = nil
}

func (w *writer) setDown(err error) {
	if !w.down {
		w.log.Error("lost the database; writes are refused until it is back", "err", err)
	}
	w.down = true
}

func (w *writer) setUp() {
	if w.down {
		w.log.Info("the database is back")
	}
	w.down = false
}
