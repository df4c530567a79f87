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
)

const (
	// gatherTime is how long entries that nobody waits for may wait for others.
	gatherTime = 20 * time.Millisecond
	// retryTime is how long the writer waits after a failure.
	retryTime = time.Second
	// maxQueue is how many entries may wait for the disk; then Record waits too.
	maxQueue = 1 << 16
)

// errClosed is what a log that was closed answers.
var errClosed = errors.New("audit: the log is closed")

// A Log appends to the record in a directory. Several processes may do so at once:
// each batch is written under a lock, behind what the others wrote. Its methods are
// safe for concurrent use. A nil *Log records nothing.
type Log struct {
	w      *writer
	log    *slog.Logger
	done   chan struct{} // closed when the last batch is written
	wake   chan struct{} // has room for one: there is something to write
	rush   chan struct{} // has room for one: somebody waits
	search chan struct{} // has room for one: somebody searches the record

	written, failed atomic.Int64
	makeRoom        atomic.Pointer[func() bool]

	mu     sync.Mutex
	room   sync.Cond // the queue has become shorter, or the log was closed
	queue  []*pending
	closed bool
}

// A pending entry is not written yet.
type pending struct {
	entry  Entry
	waited bool       // somebody waits, who will try again
	done   chan error // has room for one; of the last entry that is waited for
}

// Open opens the record in dir, or begins one. What a crash left behind the last
// checkpoint is cut off. A record that was changed otherwise is a *BrokenError.
func Open(dir string, log *slog.Logger) (*Log, error) {
	w, err := openWriter(dir)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if err := w.write(nil); err != nil { // what is to be repaired is
		return nil, errors.Join(fmt.Errorf("audit: %w", err), w.Close())
	}
	l := &Log{w: w, log: log, done: make(chan struct{}), wake: make(chan struct{}, 1), rush: make(chan struct{}, 1), search: make(chan struct{}, 1)}
	l.room.L = &l.mu
	go l.run()
	return l, nil
}

// OnFull has f called when the disk is full. If f returns true, what was not written is
// written again at once.
func (l *Log) OnFull(f func() bool) { l.makeRoom.Store(&f) }

// Record adds entries without waiting for the disk. They are written within
// moments; a crash may lose those that are not yet. With the disk far behind, it
// does wait.
func (l *Log) Record(entries ...Entry) {
	if l == nil {
		return
	}
	_ = l.add(entries, nil)
}

// Commit adds entries and returns when they are durable, or with why they are not.
// A container's second end is left out, as its first is there already, and so is
// the end of one that was never created.
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

// add puts entries into the queue. done, if any, goes with the last of them.
func (l *Log) add(entries []Entry, done chan error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for done == nil && len(l.queue) >= maxQueue && !l.closed {
		l.room.Wait()
	}
	if l.closed {
		return errClosed
	}
	now := time.Now().UTC()
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
	ring(l.wake)
	if done != nil {
		ring(l.rush)
	}
	return nil
}

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run writes what is in the queue until the log is closed.
func (l *Log) run() {
	defer close(l.done)
	for {
		<-l.wake
		select {
		case <-l.rush:
		case <-time.After(gatherTime):
		}
		l.mu.Lock()
		batch, closed := l.queue, l.closed
		l.queue = nil
		l.mu.Unlock()
		err := l.w.write(batch)
		if makeRoom := l.makeRoom.Load(); makeRoom != nil && (errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)) && (*makeRoom)() {
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
			l.log.Error("the audit record was not written; this will be tried again", "err", err, "entries", left)
			time.Sleep(retryTime)
			ring(l.wake)
		}
	}
}

// settle tells those who wait what came of a batch, and puts back the entries that
// nobody waits for if they were not written. It returns how many are in the queue.
func (l *Log) settle(batch []*pending, err error) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var again []*pending
	for _, p := range batch {
		if p.done != nil {
			p.done <- err
		}
		if err != nil && !p.waited {
			again = append(again, p)
		}
	}
	l.queue = append(again, l.queue...)
	l.room.Broadcast()
	return len(l.queue)
}

// Written returns how many entries this log has written and how often it could not,
// since it was opened.
func (l *Log) Written() (entries, failures int64) {
	if l == nil {
		return 0, 0
	}
	return l.written.Load(), l.failed.Load()
}

// Close writes what is left and closes the record.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.room.Broadcast()
	ring(l.wake)
	ring(l.rush)
	l.mu.Unlock()
	<-l.done
	if closed {
		return nil
	}
	return l.w.Close()
}

// Living returns the containers that were created and are not erased, as far as
// that is written.
func (l *Log) Living() map[berth.ContainerID]Life {
	if l == nil {
		return nil
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return maps.Clone(l.w.living)
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
	signer note.Signer
	key    note.Verifier
	lock   *os.File
	limit  int64 // the size at which a segment is full

	mu         sync.Mutex
	file       *os.File // the last segment
	name       string
	size       int64 // of what is signed in it
	chain      chain
	living     map[berth.ContainerID]Life
	checkpoint []byte
	failed     error // the disk has lost what was written: nothing can follow
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
