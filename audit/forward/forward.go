// Package forward sends the entries of an audit record to other systems: a syslog collector, a collector of
// OpenTelemetry, or a webhook.
//
// Each target gets all entries in their order, at least once. A file has the number of the next entry, and is written
// after the target has taken a batch, so neither a restart nor a target that is away for days loses entries: they are
// in the record. After a crash or a broken connection the last batch may be sent again; the number of an entry tells.
package forward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/internal/statefile"
)

// A Sink is a target of entries. Its calls do not overlap.
type Sink interface {
	// Send returns once the target has taken all entries. It may send a part of them before it fails.
	Send(ctx context.Context, entries []*audit.Entry) error

	// Close ends the connection, if there is one.
	Close() error
}

const (
	maxBatch  = 256              // entries of one Send
	sendTime  = 30 * time.Second // of one Send
	firstWait = time.Second      // after a failure; doubled up to longestWait
	longest   = time.Minute
)

// Options are those of a Forwarder. All but Limit are required.
type Options struct {
	Record *audit.Log
	Dir    string // of the record
	Cursor string // file with the place in the record
	Name   string // of the target, for logs
	Limit  int64  // entries that may wait before Full reports true; 0 means that any number may
	Sink   Sink
	Clock  clock.Clock
	Log    *slog.Logger
}

// A Forwarder sends the entries of a record to one target. It is safe for concurrent use.
type Forwarder struct {
	Options
	next   atomic.Int64 // number of the first entry that was not sent
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// A cursor is the content of the file with the place in the record.
type cursor struct {
	Next int64      `json:"next"` // number of the next entry
	Hash audit.Hash `json:"hash"` // that of the entry before it
}

// Start sends entries in the background until Close.
func Start(o Options) (*Forwarder, error) {
	f := &Forwarder{Options: o}
	at, err := f.read()
	if err != nil {
		return nil, fmt.Errorf("forward the audit record to %s: %w", o.Name, err)
	}
	f.next.Store(at.Next)
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.wg.Go(func() { f.run(ctx, at) })
	return f, nil
}

// Close stops the Forwarder. A batch that is not acknowledged is sent again after the next Start.
func (f *Forwarder) Close() error {
	f.cancel()
	f.wg.Wait()
	return f.Sink.Close()
}

// Behind returns the number of entries that were not sent.
func (f *Forwarder) Behind() int64 { return max(0, f.Record.Size()-f.next.Load()) }

// Next returns the number of the next entry: those before it have reached the target.
func (f *Forwarder) Next() int64 { return f.next.Load() }

// Full reports whether more entries wait than the Limit.
func (f *Forwarder) Full() bool { return f.Limit > 0 && f.Behind() > f.Limit }

// run sends until ctx ends.
func (f *Forwarder) run(ctx context.Context, at cursor) {
	read := make(chan *audit.Entry, maxBatch)
	f.wg.Go(func() {
		defer close(read)
		f.follow(ctx, at, read)
	})
	for first := range read {
		batch := collect(first, read)
		if !f.deliver(ctx, batch) {
			return
		}
		last := batch[len(batch)-1]
		at = cursor{last.Seq + 1, last.Hash}
		f.next.Store(at.Next)
		if err := f.save(at); err != nil {
			f.Log.Error("failed to save how far the audit record was forwarded; a restart sends it again",
				"target", f.Name, "err", err)
		}
	}
}

// collect returns the first entry and those that were read already.
func collect(first *audit.Entry, read <-chan *audit.Entry) []*audit.Entry {
	batch := []*audit.Entry{first}
	for len(batch) < maxBatch {
		select {
		case e, ok := <-read:
			if !ok {
				return batch
			}
			batch = append(batch, e)
		default:
			return batch
		}
	}
	return batch
}

// follow reads the entries after a cursor. It reads the record anew after an error.
func (f *Forwarder) follow(ctx context.Context, at cursor, to chan<- *audit.Entry) {
	delays := backoff.Delays{First: firstWait, Max: longest}
	for ctx.Err() == nil {
		for e, err := range audit.FollowFrom(ctx, f.Clock, f.Dir, at.Next) {
			if err != nil {
				f.Log.Error("failed to read the audit record to forward it; will retry", "target", f.Name, "err", err)
				break
			}
			delays.Reset()
			if e.Seq == at.Next && at.Next > 0 && e.Prev != at.Hash {
				f.Log.Warn("the audit record is another one than the one forwarded before; sending it from its start",
					"target", f.Name)
				at = cursor{}
				break
			}
			if e.Seq > at.Next {
				f.Log.Error("entries of the audit record were moved away before they were forwarded", "target", f.Name,
					"first", at.Next, "entries", e.Seq-at.Next)
			}
			e.Living = nil // it lists containers for the next writer of the record, and may be large
			select {
			case to <- e:
			case <-ctx.Done():
				return
			}
			at = cursor{e.Seq + 1, e.Hash}
		}
		_ = clock.Sleep(ctx, f.Clock, delays.Next())
	}
}

// deliver sends a batch until the target has taken it. It returns false if ctx has ended.
func (f *Forwarder) deliver(ctx context.Context, batch []*audit.Entry) bool {
	delays := backoff.Delays{First: firstWait, Max: longest}
	for failed := false; ; failed = true {
		attempt, cancel := f.Clock.WithTimeout(ctx, sendTime)
		err := f.Sink.Send(attempt, batch)
		cancel()
		switch {
		case err == nil:
			if failed {
				f.Log.Info("the audit record is forwarded again", "target", f.Name, "behind", f.Behind())
			}
			return true
		case ctx.Err() != nil:
			return false
		case !failed:
			f.Log.Error("failed to forward the audit record; will retry", "target", f.Name, "behind", f.Behind(), "err", err)
		}
		if clock.Sleep(ctx, f.Clock, delays.Next()) != nil {
			return false
		}
	}
}

// read returns the place from which to continue.
func (f *Forwarder) read() (cursor, error) {
	var at cursor
	raw, err := statefile.ReadFile(f.Cursor)
	if errors.Is(err, fs.ErrNotExist) {
		return at, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &at)
	}
	if err == nil && at.Next < 0 {
		err = errors.New("the number of the next entry is negative")
	}
	if err != nil {
		return at, fmt.Errorf("%s: %w; remove the file to send the whole record again", f.Cursor, err)
	}
	if at.Next > f.Record.Size() {
		f.Log.Warn("the audit record is shorter than what was forwarded; sending it from its start", "target", f.Name)
		return cursor{}, nil
	}
	return at, nil
}

// save replaces the file with the place.
func (f *Forwarder) save(at cursor) error {
	raw, err := json.Marshal(at)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.Cursor), 0o700); err != nil {
		return err
	}
	fresh, err := os.CreateTemp(filepath.Dir(f.Cursor), ".cursor-")
	if err != nil {
		return err
	}
	_, err = fresh.Write(raw)
	if err = errors.Join(err, fresh.Sync(), fresh.Close()); err == nil {
		err = os.Rename(fresh.Name(), f.Cursor)
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh.Name()))
	}
	return nil
}
