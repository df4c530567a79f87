package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/clock"
)

const (
	// gatherTime is how long an entry waits for others to share its batch. Commit does not
	// wait.
	gatherTime = 20 * time.Millisecond
	// retryTime is how long the writer waits after a failure.
	retryTime = time.Second
	// maxQueue is how many entries may wait for the disk before Record blocks.
	maxQueue = 1 << 16
)

// errClosed is returned by a closed log.
var errClosed = errors.New("audit: the log is closed")

// A Log appends to the record in a directory. It is safe for concurrent use, also by several
// processes: each batch is written under a lock, after the others' batches. A nil *Log
// records nothing.
type Log struct {
	w      *writer
	log    *slog.Logger
	done   chan struct{} // closed when the last batch is written
	wake   chan struct{} // capacity 1: there is something to write
	rush   chan struct{} // capacity 1: a caller waits in Commit
	search chan struct{} // capacity 1: a search of the record runs

	written, failed atomic.Int64
	makeRoom        atomic.Pointer[func() bool]

	mu        sync.Mutex
	room      sync.Cond // signaled when the queue shrinks, a batch is written or the log closes
	queue     []*pending
	unwritten int // entries in the queue and in the batch that is written now
	closed    bool
}

// A pending is an entry that is not written yet.
type pending struct {
	entry  Entry
	waited bool       // added by Commit, whose caller retries on failure
	done   chan error // capacity 1; set on the last entry of a Commit
}

// Open opens the record in dir, or starts one. It removes what a crash left after the last
// checkpoint. It returns a *BrokenError if the record was changed in any other way.
func Open(dir string, log *slog.Logger) (*Log, error) { return openAt(dir, log, clock.System) }

func openAt(dir string, log *slog.Logger, c clock.Clock) (*Log, error) {
	w, err := openWriter(dir, c)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if err := w.write(nil); err != nil { // repairs the record if necessary
		return nil, errors.Join(fmt.Errorf("audit: %w", err), w.Close())
	}
	l := &Log{w: w, log: log, done: make(chan struct{}), wake: make(chan struct{}, 1), rush: make(chan struct{}, 1),
		search: make(chan struct{}, 1)}
	l.room.L = &l.mu
	go l.run()
	return l, nil
}

// OnFull sets a function to call when the disk is full. If f returns true, the failed write
// is repeated immediately.
func (l *Log) OnFull(f func() bool) { l.makeRoom.Store(&f) }

// Record adds entries without waiting for the disk. They are written within moments; a crash
// may lose those that are not yet written. Record blocks only if the disk is far behind.
func (l *Log) Record(entries ...Entry) {
	if l == nil {
		return
	}
	_ = l.add(entries, nil)
}

// Commit adds entries and waits until they are durable. It returns an error if they cannot be
// written. It skips an entry that ends a container twice, or ends one that was never created.
func (l *Log) Commit(ctx context.Context, entries ...Entry) error {
	if l == nil || len(entries) == 0 {
		return nil
	}
	done := make(chan error, 1)
	if err := l.add(entries, done); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Settled returns when all entries that were recorded before are durable, or will not be because the log was closed.
func (l *Log) Settled() {
	l.mu.Lock()
	for l.unwritten > 0 && !l.closed {
		signal(l.rush)
		l.room.Wait()
	}
	closed := l.closed
	l.mu.Unlock()
	if closed {
		<-l.done
	}
}

// add queues entries. done, if not nil, receives the result of the last of them.
func (l *Log) add(entries []Entry, done chan error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for done == nil && len(l.queue) >= maxQueue && !l.closed {
		l.room.Wait()
	}
	if l.closed {
		return errClosed
	}
	now := l.w.clock.Now().UTC()
	for i, e := range entries {
		if e.Time.IsZero() {
			e.Time = now
		}
		e.clip()
		p := &pending{entry: e, waited: done != nil}
		if i == len(entries)-1 {
			p.done = done
		}
		l.queue = append(l.queue, p)
	}
	l.unwritten += len(entries)
	signal(l.wake)
	if done != nil {
		signal(l.rush)
	}
	return nil
}

// signal sends to a channel of capacity 1 without blocking.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run writes the queue until the log is closed.
func (l *Log) run() {
	defer close(l.done)
	for {
		<-l.wake
		select {
		case <-l.rush:
		case <-l.w.clock.After(gatherTime):
		}
		l.mu.Lock()
		batch, closed := l.queue, l.closed
		l.queue = nil
		l.mu.Unlock()
		err := l.w.write(batch)
		if makeRoom := l.makeRoom.Load(); makeRoom != nil && (errors.Is(err, unix.ENOSPC) ||
			errors.Is(err, unix.EDQUOT)) && (*makeRoom)() {
			err = l.w.write(batch)
		}
		left := l.settle(batch, err)
		if closed && (left == 0 || err != nil) {
			return
		}
		if err == nil {
			l.written.Add(int64(len(batch)))
		} else {
			l.failed.Add(1)
			l.log.Error("failed to write audit record; will retry", "err", err, "entries", left)
			<-l.w.clock.After(retryTime)
			signal(l.wake)
		}
	}
}

// settle sends the result of a batch to the callers of Commit. If the batch failed, settle
// queues the other entries again. It returns the length of the queue.
func (l *Log) settle(batch []*pending, err error) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var retry []*pending
	for _, p := range batch {
		if p.done != nil {
			p.done <- err
		}
		if err != nil && !p.waited {
			retry = append(retry, p)
		}
	}
	l.queue = append(retry, l.queue...)
	l.unwritten -= len(batch) - len(retry)
	l.room.Broadcast()
	return len(l.queue)
}

// Written returns how many entries this log has written since it was opened, and how many
// writes have failed.
func (l *Log) Written() (entries, failures int64) {
	if l == nil {
		return 0, 0
	}
	return l.written.Load(), l.failed.Load()
}

// Close writes the queue and closes the record.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.room.Broadcast()
	signal(l.wake)
	signal(l.rush)
	l.mu.Unlock()
	<-l.done
	if closed {
		return nil
	}
	return l.w.Close()
}

// Living returns the containers that, according to the written entries, were created and are
// not erased.
func (l *Log) Living() map[berth.ContainerID]Life {
	if l == nil {
		return nil
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return maps.Clone(l.w.living)
}

// Size returns the number of entries that are written, also by other processes that have written before this one.
func (l *Log) Size() int64 {
	if l == nil {
		return 0
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.chain.next
}

// Checkpoint returns the last signed checkpoint.
func (l *Log) Checkpoint() string {
	if l == nil {
		return ""
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return string(l.w.checkpoint)
}

// A writer appends batches to the last segment.
type writer struct {
	dir    string
	clock  clock.Clock
	signer note.Signer
	key    note.Verifier
	lock   *os.File
	limit  int64 // the size at which a segment is full

	mu         sync.Mutex
	file       *os.File // the last segment
	name       string
	size       int64 // of the signed part
	chain      chain
	living     map[berth.ContainerID]Life
	checkpoint []byte
	failed     error // set when written data may be lost: nothing can follow
}

func (w *writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.lock.Close()
	if w.file != nil {
		err = errors.Join(err, w.file.Close())
	}
	return err
}

func (w *writer) path(name string) string { return filepath.Join(w.dir, name) }
