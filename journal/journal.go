// Package journal stores the event stream of each response. A Writer appends to it, and
// readers follow it.
//
// The engine only appends. All readers use the same Follow loop: a live stream, a stream
// resumed by starting_after, an answer without a stream, and the command line. An event is
// stored before any reader receives it.
package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/store"
)

// A Journal holds the event streams of all responses of a store. It is safe for
// concurrent use.
type Journal struct {
	store   store.Responses
	readers *ration.Pool
	atEnd   []func(r *store.Response, final *berth.Response) []*store.Object

	patience time.Duration // how long followers wait for a writer that fails to store

	mu    sync.Mutex
	feeds map[feedKey]*feed // of the writers in this process
}

// New returns a journal in a store.
func New(st store.Responses) *Journal {
	return &Journal{store: st, patience: defaultPatience, feeds: map[feedKey]*feed{}}
}

// SetPatience sets how long followers wait for a run whose events cannot be stored.
// It must not be called after the first use.
func (j *Journal) SetPatience(d time.Duration) { j.patience = d }

// Bound makes followers account the events that they hold in memory in a pool, for the
// project of the response. Bound must not be called after the first use.
func (j *Journal) Bound(readers *ration.Pool) { j.readers = readers }

// AtEnd registers a function whose objects are stored together with the last event of a
// response. It receives the response as it was created or resumed, and as it ends. f must
// not block. AtEnd must not be called after the first use.
func (j *Journal) AtEnd(f func(r *store.Response, final *berth.Response) []*store.Object) {
	j.atEnd = append(j.atEnd, f)
}

// ending returns the objects of the AtEnd functions if body has ended, else nil.
func (j *Journal) ending(r *store.Response, body *berth.Response) (also []*store.Object) {
	if body.Status.Final() {
		for _, f := range j.atEnd {
			also = append(also, f(r, body)...)
		}
	}
	return also
}

// A Writer appends to the journal of one response and folds its events into the response.
// It is safe for concurrent use. Events are stored in the order of the calls.
type Writer struct {
	journal *Journal
	record  *store.Response
	owner   string
	feed    *feed

	mu   sync.Mutex
	body berth.Response // the fold of all events appended
	next int64          // the next sequence number
	err  error          // of the first failed append, which all later ones return
}

// Create stores a new response with its first events and further objects, and opens its
// journal for the lease's owner. Events are numbered from 0. It returns errors of
// store.Responses.CreateResponse.
func (j *Journal) Create(ctx context.Context, r *store.Response, lease store.Lease, events []berth.Event, also ...*store.Object) (*Writer, error) {
	w := &Writer{journal: j, record: r, owner: lease.Owner, body: *r.Body}
	records, err := w.number(&w.body, events)
	if err != nil {
		return nil, err
	}
	first := w.body // a copy, because the writer's body changes
	r.Body = &first
	also = append(also, j.ending(r, &first)...)
	if err := j.store.CreateResponse(ctx, r, records, lease, also...); err != nil {
		return nil, fmt.Errorf("create response: %w", err)
	}
	w.feed = j.open(w.record.Project, w.body.ID, 0)
	w.feed.add(records)
	w.next = int64(len(records))
	return w, nil
}

// Resume opens the journal of a stored response for an owner that holds its lease. It
// returns the events stored so far.
func (j *Journal) Resume(ctx context.Context, r *store.Response, owner string) (*Writer, []berth.Event, error) {
	w := &Writer{journal: j, record: r, owner: owner, body: *r.Body}
	var events []berth.Event
	for {
		records, err := j.store.Events(ctx, r.Project, r.Body.ID, w.next-1, page)
		if err != nil {
			return nil, nil, fmt.Errorf("read events: %w", err)
		}
		for _, rec := range records {
			var ev berth.Event
			if err := json.Unmarshal(rec.Data, &ev); err != nil {
				return nil, nil, fmt.Errorf("event %d of %s: %w", rec.SequenceNumber, r.Body.ID, err)
			}
			events = append(events, ev)
			w.next = rec.SequenceNumber + 1
		}
		if len(records) == 0 {
			break
		}
	}
	w.feed = j.open(w.record.Project, w.body.ID, w.next)
	return w, events, nil
}

// Err returns the error of the first failed append, or nil. After it nothing can be
// appended. The events of that append may have been stored; Resume reads them.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close closes the writer. Followers continue from the store, or from the writer that has
// resumed the response since.
func (w *Writer) Close() {
	w.journal.close(w.feed)
}

// Body returns the response with all events applied. The caller must not change its Output
// in place.
func (w *Writer) Body() berth.Response {
	w.mu.Lock()
	defer w.mu.Unlock()
	body := w.body
	body.Output = slices.Clip(body.Output)
	return body
}

// Append numbers the events, stores them, applies them to the response and wakes
// followers. When it returns nil the events are durable. After a failure to store, all
// further appends fail, because the writer cannot know which events were stored.
func (w *Writer) Append(ctx context.Context, events ...berth.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.append(ctx, events)
}

// Update appends the events that change returns for the current response. No other event
// can come in between, so change may use the next output index.
func (w *Writer) Update(ctx context.Context, change func(body berth.Response) []berth.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.append(ctx, change(w.body))
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

func (w *Writer) append(ctx context.Context, events []berth.Event) error {
	if w.err != nil {
		return w.err
	}
	if ctx.Err() != nil || len(events) == 0 {
		return context.Cause(ctx)
	}
	body := w.body
	var save *berth.Response
	if slices.ContainsFunc(events, changesBody) {
		body.Output = slices.Clone(body.Output) // callers of Body share the old one
		save = &body
	}
	records, err := w.number(&body, events)
	if err != nil {
		return err
	}
	also := w.journal.ending(w.record, &body)
	// Do not abort a write that has started, or its result would be unknown.
	if err := w.journal.store.AppendEvents(context.WithoutCancel(ctx), w.record.Project, body.ID, w.owner, records, save, also...); err != nil {
		w.err = fmt.Errorf("append events: %w", err)
		w.feed.fail(w.err)
		return w.err
	}
	w.body = body
	w.next += int64(len(records))
	w.feed.add(records)
	return nil
}

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
		data, err := json.Marshal(ev)
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
