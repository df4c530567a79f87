package journal

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// maxQueued bounds the bytes of events that wait to be stored. Queue waits beyond it, so a
// slow disk slows the run instead of filling the memory.
const maxQueued = 256 << 10

// A Writer appends to the journal of one response and folds its events into the response.
// It is safe for concurrent use. Events are stored in the order of the calls. Events that
// are appended while a write runs are stored together by the next write.
type Writer struct {
	journal *Journal
	record  *store.Response
	owner   string
	feed    *feed

	mu      sync.Mutex
	body    berth.Response // the fold of all events appended
	next    int64          // the next sequence number
	stored  int64          // events with lower sequence numbers are stored
	queue   batch          // events that are not stored yet
	writing bool           // a goroutine stores a batch
	changed *sync.Cond     // signals changes of stored, writing and err
	err     error          // of the first failed write, which all later calls return
}

// A batch is what one write stores.
type batch struct {
	ctx    context.Context
	events []store.Event
	bytes  int             // of events
	body   *berth.Response // to be stored; nil if the events leave it unchanged
	also   []*store.Object
}

func (j *Journal) writer(r *store.Response, owner string) *Writer {
	w := &Writer{journal: j, record: r, owner: owner, body: *r.Body}
	w.changed = sync.NewCond(&w.mu)
	return w
}

// Err returns the error of the first failed write, or nil. After it nothing can be
// appended. The events of that write may have been stored; Resume reads them.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close closes the writer when all events are stored, or a write has failed. Followers
// continue from the store, or from the writer that has resumed the response since.
func (w *Writer) Close() {
	_ = w.Flush()
	w.journal.close(w.feed)
}

// Body returns the response with all events applied, also those that are not stored yet.
// The caller must not change its Output in place.
func (w *Writer) Body() berth.Response {
	w.mu.Lock()
	defer w.mu.Unlock()
	body := w.body
	body.Output = slices.Clip(body.Output)
	return body
}

// Append numbers the events, applies them to the response, stores them and wakes
// followers. When it returns nil the events are durable, as are those of earlier calls.
// After a failure to store, all further calls fail, because the writer cannot know which
// events were stored.
func (w *Writer) Append(ctx context.Context, events ...berth.Event) error {
	return w.Update(ctx, func(berth.Response) []berth.Event { return events })
}

// Update appends the events that change returns for the current response. No other event
// can come in between, so change may use the next output index.
func (w *Writer) Update(ctx context.Context, change func(body berth.Response) []berth.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.enqueue(ctx, change(w.body)); err != nil {
		return err
	}
	return w.flush()
}

// Queue is Update, but returns before the events are stored. Followers do not see them
// until they are. A failure to store them is returned by a later call.
func (w *Writer) Queue(ctx context.Context, change func(body berth.Response) []berth.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.err == nil && w.queue.bytes > maxQueued {
		w.changed.Wait()
	}
	if err := w.enqueue(ctx, change(w.body)); err != nil {
		return err
	}
	if !w.writing && len(w.queue.events) > 0 {
		w.writing = true
		go func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.write()
		}()
	}
	return nil
}

// Flush returns when all events that were appended before are stored.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

// SetUsage sets the usage so far. It is stored with the next event of an item or of the
// response. Only a final event shows it: on the wire usage is null until then. turns are
// the new turns in it whose upstream is known.
func (w *Writer) SetUsage(u berth.Usage, turns ...berth.UpstreamUsage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.body.Usage = &u
	for _, turn := range turns {
		w.body.Berth = w.body.Berth.AddTurn(turn)
	}
}

// AddTiming adds a timing to the response. It is stored with the next event of an item or of
// the response.
func (w *Writer) AddTiming(t berth.Timing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.body.Berth = w.body.Berth.AddTiming(t)
}

// enqueue numbers events, applies them to the response and adds them to the queue. The
// caller holds mu.
func (w *Writer) enqueue(ctx context.Context, events []berth.Event) error {
	if w.err != nil {
		return w.err
	}
	if ctx.Err() != nil || len(events) == 0 {
		return context.Cause(ctx)
	}
	body := &w.body
	changes := slices.ContainsFunc(events, changesBody)
	if changes {
		changed := w.body
		changed.Output = slices.Clone(changed.Output) // callers of Body, and the batch, share the old one
		body = &changed
	}
	records, err := w.number(body, events)
	if err != nil {
		return err
	}
	w.next += int64(len(records))
	q := &w.queue
	q.ctx = context.WithoutCancel(ctx) // a write that has started is not aborted: its result would be unknown
	q.events = append(q.events, records...)
	for _, r := range records {
		q.bytes += len(r.Data)
	}
	if changes {
		w.body, q.body = *body, body
		q.also = append(q.also, w.journal.ending(w.record, body)...)
	}
	return nil
}

// flush returns when all events are stored. The caller holds mu.
func (w *Writer) flush() error {
	for end := w.next; w.stored < end && w.err == nil; {
		if w.writing {
			w.changed.Wait()
			continue
		}
		w.writing = true
		w.write()
	}
	return w.err
}

// write stores the queue until it is empty or a write fails. The caller holds mu, which is
// released during a write, and has set writing.
func (w *Writer) write() {
	for len(w.queue.events) > 0 && w.err == nil {
		b := w.queue
		w.queue = batch{}
		w.mu.Unlock()
		err := w.journal.store.AppendEvents(b.ctx, w.record.Project, w.record.Body.ID, w.owner, b.events, b.body,
			b.also...)
		w.mu.Lock()
		if err != nil {
			w.err = fmt.Errorf("append events: %w", err)
			w.feed.fail(w.err)
			break
		}
		w.stored += int64(len(b.events))
		w.feed.add(b.events)
		w.changed.Broadcast()
	}
	w.writing = false
	w.changed.Broadcast()
}

// deltaOverhead is the usual size of a delta event without its delta, in bytes.
const deltaOverhead = 256

// number sets the sequence numbers of events, applies the events to body and returns them
// as stored records.
func (w *Writer) number(body *berth.Response, events []berth.Event) ([]store.Event, error) {
	records := make([]store.Event, len(events))
	for i := range events {
		ev := &events[i]
		ev.SequenceNumber = w.next + int64(i)
		if err := body.Apply(ev); err != nil {
			return nil, err
		}
		data, err := ev.AppendJSON(make([]byte, 0, len(ev.Delta)+deltaOverhead))
		if err != nil {
			return nil, err
		}
		records[i] = store.Event{SequenceNumber: ev.SequenceNumber, Type: ev.Type, Data: data}
	}
	return records, nil
}

func changesBody(ev berth.Event) bool {
	return ev.Response != nil || ev.Type == berth.EventOutputItemAdded || ev.Type == berth.EventOutputItemDone
}
