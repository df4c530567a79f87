package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/store/sqlite/query"
)

// A deletion is done when three things have happened, in this order:
//
//   - the rows are deleted and their keys entered into the table doomed, in one
//     transaction;
//   - the write-ahead log is synced: a power cut must not bring rows back whose keys
//     are gone;
//   - the keys are overwritten, which is synced as well.
//
// After a crash the next Open overwrites the keys that are doomed. Deletions at the
// same time share the work.

// erase runs do, which deletes rows and returns their keys, in a transaction, and
// erases the keys.
func (d *DB) erase(ctx context.Context, do func(context.Context, *query.Queries) ([]int64, error)) error {
	var gone []int64
	err := d.settle(ctx, func(ctx context.Context, q *query.Queries) error {
		all, err := do(ctx, q)
		gone = gone[:0]
		for _, n := range all {
			if n == 0 {
				continue // of a row in the clear
			}
			gone = append(gone, n)
			if err := q.Doom(ctx, n); err != nil {
				return err
			}
		}
		return err
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	return d.eraser.erase(gone)
}

// maxErasures is how many deletions share a sync at most.
const maxErasures = 256

// An erasure is what one deletion waits for.
type erasure struct {
	keys []int64
	err  error
	done chan struct{}
}

// An eraser overwrites keys of rows that are deleted.
type eraser struct {
	path   string // of the database
	keys   *keys
	writer *writer
	log    *slog.Logger

	gate   sync.RWMutex // held for reading to send to work, for writing to close it
	work   chan *erasure
	closed bool
	ended  chan struct{}

	failed []int64 // tried again with the next ones; owned by run
}

// newEraser erases what the last process has left, and starts.
func newEraser(ctx context.Context, d *DB) (*eraser, error) {
	e := &eraser{path: d.path, keys: d.keys, writer: d.writer, log: d.log,
		work: make(chan *erasure, maxErasures), ended: make(chan struct{})}
	doomed, err := d.queries.Doomed(ctx)
	if err == nil && len(doomed) > 0 {
		if err = e.overwrite(doomed); err == nil {
			err = e.forget(doomed)
		}
	}
	if err != nil {
		return nil, err
	}
	go e.run()
	return e, nil
}

// erase returns when the keys are gone. If it returns an error, it will be tried again.
func (e *eraser) erase(keys []int64) error {
	one := &erasure{keys: keys, done: make(chan struct{})}
	if err := e.send(one); err != nil {
		return err
	}
	<-one.done
	return one.err
}

func (e *eraser) send(one *erasure) error {
	e.gate.RLock()
	defer e.gate.RUnlock()
	if e.closed {
		return errClosed
	}
	e.work <- one
	return nil
}

// close waits for what has begun.
func (e *eraser) close() error {
	e.gate.Lock()
	e.closed = true
	close(e.work)
	e.gate.Unlock()
	<-e.ended
	return nil
}

func (e *eraser) run() {
	defer close(e.ended)
	var batch []*erasure
	for one := range e.work {
		batch = append(batch[:0], one)
		for more := true; more && len(batch) < maxErasures; {
			select {
			case one, ok := <-e.work:
				if more = ok; ok {
					batch = append(batch, one)
				}
			default:
				more = false
			}
		}
		e.eraseAll(batch)
		clear(batch)
	}
}

func (e *eraser) eraseAll(batch []*erasure) {
	all := e.failed
	for _, one := range batch {
		all = append(all, one.keys...)
	}
	err := e.overwrite(all)
	for _, one := range batch {
		one.err = err
		close(one.done)
	}
	if e.failed = nil; err != nil {
		e.failed = all
		e.log.Error("the keys of what was deleted could not be erased; this will be tried again", "err", err)
		return
	}
	if err := e.forget(all); err != nil {
		e.log.Warn("that keys are erased was not noted; the next start erases them again", "err", err)
	}
}

// overwrite erases keys whose rows are deleted.
func (e *eraser) overwrite(numbers []int64) error {
	if err := syncLog(e.path); err != nil {
		return err
	}
	return e.keys.ring.Erase(numbers...)
}

// syncLog makes what was committed durable. The log's file may be opened and closed
// beside SQLite: its locks are not on that.
func syncLog(path string) error {
	f, err := os.Open(path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // all is in the database
	}
	if err != nil {
		return err
	}
	return errors.Join(unix.Fdatasync(int(f.Fd())), f.Close())
}

// forget removes keys that are erased from the list of those that are to be.
func (e *eraser) forget(numbers []int64) error {
	return e.writer.update(context.Background(), func(ctx context.Context, q *query.Queries) error {
		for _, n := range numbers {
			if err := q.Done(ctx, n); err != nil {
				return err
			}
		}
		return nil
	})
}
