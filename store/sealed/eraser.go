package sealed

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/berth-run/berth/store"
)

// A deletion takes three steps, in this order:
//
//   - delete the rows and list their keys as doomed, in one transaction;
//   - make that transaction durable: a power failure must not restore rows whose keys
//     are destroyed;
//   - overwrite the keys, durably.
//
// After a crash, NewEraser overwrites the doomed keys.

// A Doomed is a database's list of the keys of deleted rows that are not erased yet.
type Doomed interface {
	// List returns all keys in the list.
	List(ctx context.Context) ([]int64, error)
	// Sync makes all committed transactions durable against a power failure.
	Sync() error
	// Remove removes keys from the list.
	Remove(ctx context.Context, keys []int64) error
}

// maxErasures is the most deletions that share a sync.
const maxErasures = 256

// An Eraser destroys the keys of deleted rows. Concurrent deletions share the work. It
// is safe for concurrent use.
type Eraser struct {
	keys   *Keys
	doomed Doomed
	log    *slog.Logger

	gate   sync.RWMutex // held for reading to send to work, for writing to close it
	work   chan *erasure
	closed bool
	ended  chan struct{}

	failed []int64 // retried with the next keys; owned by run
}

// An erasure is the work of one deletion.
type erasure struct {
	keys []int64
	err  error
	done chan struct{}
}

// NewEraser returns a started Eraser. It first erases the keys that an earlier process
// left in the list.
func NewEraser(ctx context.Context, keys *Keys, doomed Doomed, log *slog.Logger) (*Eraser, error) {
	e := &Eraser{keys: keys, doomed: doomed, log: log, work: make(chan *erasure, maxErasures),
		ended: make(chan struct{})}
	left, err := doomed.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list doomed keys: %w", err)
	}
	if len(left) > 0 {
		if err := e.destroy(ctx, left); err != nil {
			return nil, err
		}
		if err := doomed.Remove(ctx, left); err != nil {
			return nil, fmt.Errorf("remove doomed keys: %w", err)
		}
	}
	go e.run()
	return e, nil
}

// Erase destroys keys of deleted rows, which must be in the list. It returns when they
// are destroyed. If it returns an error, they will be destroyed with the next ones, or
// by the next NewEraser. keys must not contain 0, the number of unsealed rows.
func (e *Eraser) Erase(keys []int64) error {
	one := &erasure{keys: keys, done: make(chan struct{})}
	if err := e.send(one); err != nil {
		return err
	}
	<-one.done
	return one.err
}

func (e *Eraser) send(one *erasure) error {
	e.gate.RLock()
	defer e.gate.RUnlock()
	if e.closed {
		return store.ErrClosed
	}
	e.work <- one
	return nil
}

// Close waits for the erasures that have started. Later ones return store.ErrClosed.
func (e *Eraser) Close() error {
	e.gate.Lock()
	e.closed = true
	close(e.work)
	e.gate.Unlock()
	<-e.ended
	return nil
}

func (e *Eraser) run() {
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

func (e *Eraser) eraseAll(batch []*erasure) {
	all := e.failed
	for _, one := range batch {
		all = append(all, one.keys...)
	}
	err := e.destroy(context.Background(), all)
	for _, one := range batch {
		one.err = err
		close(one.done)
	}
	if e.failed = nil; err != nil {
		e.failed = all
		e.log.Error("failed to erase the keys of deleted rows; will retry", "err", err)
		return
	}
	if err := e.doomed.Remove(context.Background(), all); err != nil {
		e.log.Warn("failed to record that keys are erased; the next start erases them again", "err", err)
	}
}

// destroy overwrites keys whose rows are deleted.
func (e *Eraser) destroy(ctx context.Context, numbers []int64) error {
	if err := e.doomed.Sync(); err != nil {
		return fmt.Errorf("sync deletions: %w", err)
	}
	return e.keys.erase(ctx, numbers)
}
