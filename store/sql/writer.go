package sql

import (
	"context"
	"fmt"
	"sync"

	"github.com/berth-run/berth/store"
)

// maxBatch is the most writes in one transaction.
const maxBatch = 256

// A Write waits for its transaction.
type Write struct {
	Context context.Context // if it ends before the write has begun, nothing is written
	Do      func(context.Context, *Tx) error
	Err     error // set by save
	Alone   bool  // the transaction has no other write
	done    chan struct{}
}

// A Writer passes all writes of a process to one function, which runs several of them in a
// transaction. While it commits, further writes queue up for the next transaction.
type Writer struct {
	save func(batch []*Write)

	gate   sync.RWMutex // held for reading to send to writes, for writing to close it
	writes chan *Write
	closed bool
	ended  chan struct{}
}

// NewWriter returns a writer that calls save with one batch after the other. save sets the errors
// of the writes that were not saved.
func NewWriter(save func(batch []*Write)) *Writer {
	w := &Writer{save: save, writes: make(chan *Write, maxBatch), ended: make(chan struct{})}
	go w.run()
	return w
}

// Close waits for the writes that were sent. Later ones get ErrClosed.
func (w *Writer) Close() {
	w.gate.Lock()
	w.closed = true
	close(w.writes)
	w.gate.Unlock()
	<-w.ended
}

// Waiting returns the number of writes that wait for the next transaction.
func (w *Writer) Waiting() int { return len(w.writes) }

// Update runs do in a transaction; see Driver.
func (w *Writer) Update(ctx context.Context, do func(context.Context, *Tx) error) error {
	return w.wait(&Write{Context: ctx, Do: do, done: make(chan struct{})})
}

// UpdateAlone is Update in a transaction that has no other writes.
func (w *Writer) UpdateAlone(ctx context.Context, do func(context.Context, *Tx) error) error {
	return w.wait(&Write{Context: ctx, Do: do, done: make(chan struct{}), Alone: true})
}

// wait sends a write and waits until it is saved.
func (w *Writer) wait(one *Write) error {
	if err := w.send(one); err != nil {
		return err
	}
	<-one.done // even if ctx ends: the caller must learn whether it was saved
	return one.Err
}

func (w *Writer) send(one *Write) error {
	w.gate.RLock()
	defer w.gate.RUnlock()
	if w.closed {
		return fmt.Errorf("write: %w", store.ErrClosed)
	}
	select {
	case w.writes <- one:
		return nil
	case <-one.Context.Done():
		return context.Cause(one.Context)
	}
}

// run saves the queued writes, one batch at a time.
func (w *Writer) run() {
	defer close(w.ended)
	var batch []*Write
	for one := range w.writes {
		batch = append(batch[:0], one)
		var alone *Write // after the batch
		for more := !one.Alone; more && len(batch) < maxBatch; {
			select {
			case one, ok := <-w.writes:
				if ok && one.Alone {
					alone = one
				} else if ok {
					batch = append(batch, one)
				}
				more = ok && alone == nil
			default:
				more = false
			}
		}
		w.saveAll(batch)
		if alone != nil {
			w.saveAll(append(batch[:0], alone))
		}
		clear(batch)
	}
}

// saveAll saves a batch, and tells those who wait.
func (w *Writer) saveAll(batch []*Write) {
	w.save(batch)
	for _, one := range batch {
		close(one.done)
	}
}
