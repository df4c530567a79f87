package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-run/berth/store/sqlite/query"
)

// What was deleted must not be found on the disk. SQLite's secure_delete overwrites
// rows and freed pages, but that leaves two places:
//
//   - the write-ahead log, which has the pages as they were, until it is truncated;
//   - the gap in the middle of a page of a tree. When SQLite moves rows from a full
//     or empty page to its neighbours, it may leave bytes of them there.
//
// So soon after a deletion the eraser clears all gaps and truncates the log. The
// table erasure counts deletions and how many of them were dealt with: a deletion
// that a crash overtook is dealt with after the next start.
const (
	eraseDelay   = time.Second      // deletions in this time share the work
	eraseRest    = 9                // times as long as the work took, the eraser rests
	eraseAtClose = 5 * time.Second  // how long Close waits for it
	eraseRetry   = 10 * time.Second // when a reader was in the way
	logPatience  = 200              // milliseconds that writes may stand still for a reader
)

// erase runs do, which deletes something, in a transaction, and has it erased.
func (d *DB) erase(ctx context.Context, do func(context.Context, *query.Queries) error) error {
	err := d.update(ctx, func(ctx context.Context, q *query.Queries) error {
		if err := do(ctx, q); err != nil {
			return err
		}
		return q.CountDeletion(ctx)
	})
	if err == nil {
		d.eraser.wake()
	}
	return err
}

// An eraser removes what deletions leave behind, in the background.
type eraser struct {
	read   *sql.DB
	reads  *query.Queries
	writer *writer
	log    *slog.Logger

	work    chan struct{} // something was deleted
	closing chan struct{}
	wg      sync.WaitGroup
}

func newEraser(d *DB) *eraser {
	e := &eraser{read: d.read, reads: d.queries, writer: d.writer, log: d.log,
		work: make(chan struct{}, 1), closing: make(chan struct{})}
	e.wake() // for what the last process left
	e.wg.Go(e.run)
	return e
}

// wake says that something was deleted.
func (e *eraser) wake() {
	select {
	case e.work <- struct{}{}:
	default:
	}
}

// close erases what was deleted so far, if that does not take long.
func (e *eraser) close() error {
	close(e.closing)
	e.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), eraseAtClose)
	defer cancel()
	if _, err := e.erase(ctx); err != nil {
		e.log.Warn("what was deleted is still in the database file; the next start erases it", "err", err)
	}
	return nil
}

func (e *eraser) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e.wg.Go(func() {
		<-e.closing
		cancel()
	})
	for {
		select {
		case <-e.work:
		case <-e.closing:
			return
		}
		if !e.pause(eraseDelay) {
			return
		}
		begin := time.Now()
		rest := time.Duration(0)
		done, err := e.erase(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			e.log.Error("what was deleted could not be erased from the database file", "err", err)
			fallthrough
		case !done:
			e.wake()
			rest = eraseRetry
		}
		if !e.pause(max(rest, eraseRest*time.Since(begin))) {
			return
		}
	}
}

// pause waits and reports whether to go on.
func (e *eraser) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-e.closing:
		return false
	}
}

// erase removes all traces of the deletions so far. It reports false if a reader
// still needs the log.
func (e *eraser) erase(ctx context.Context) (done bool, err error) {
	state, err := e.reads.Erasure(ctx)
	if err != nil || state.Deleted == state.Erased {
		return true, err
	}
	if err := e.clearGaps(ctx); err != nil {
		return false, err
	}
	if done, err := e.truncateLog(); !done || err != nil {
		return false, err
	}
	return true, e.writer.update(ctx, func(ctx context.Context, q *query.Queries) error {
		return q.SetErased(ctx, state.Deleted)
	})
}

// truncateLog copies the write-ahead log into the database and empties it.
func (e *eraser) truncateLog() (done bool, err error) {
	err = e.writer.alone(func(c *sql.Conn) error {
		ctx := context.Background()
		// Readers hold their part of the log. Writes wait with us, so not for long.
		if _, err := c.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", logPatience)); err != nil {
			return err
		}
		defer c.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", busyTimeout))
		var busy, frames, copied int
		err := c.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &copied)
		done = busy == 0
		return err
	})
	return done, err
}
