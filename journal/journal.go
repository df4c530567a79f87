// Package journal is the event stream of a response: append, follow, resume.
//
// It is the one joint between the engine, which only appends, and every reader:
// a live stream, a stream resumed by starting_after, a plain answer that waits
// for the end, the command line. They are all the same Follow loop. An event is
// stored before any reader sees it.
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

	patience time.Duration // of followers with a writer that fails

	mu    sync.Mutex
	feeds map[feedKey]*feed // of the writers in this process
}

// New returns a journal kept in st.
func New(st store.Responses) *Journal {
	return &Journal{store: st, patience: defaultPatience, feeds: map[feedKey]*feed{}}
}

// SetPatience sets how long followers wait for a run whose events cannot be stored.
// It must not be called after the first use.
func (j *Journal) SetPatience(d time.Duration) { j.patience = d }

// Bound has followers hold what they read in a pool, for the project whose response
// it is. Bound must not be called after the first use.
func (j *Journal) Bound(readers *ration.Pool) { j.readers = readers }

// AtEnd has f asked what is to be saved together with a response's last event,
// which final shows; r is the response as it was created or resumed. f must not
// block. AtEnd must not be called after the first use.
func (j *Journal) AtEnd(f func(r *store.Response, final *berth.Response) []*store.Object) {
	j.atEnd = append(j.atEnd, f)
}

// ending returns what is to be saved with a response as it is now: nothing before
// its last event.
func (j *Journal) ending(r *store.Response, body *berth.Response) (also []*store.Object) {
	if body.Status.Final() {
		for _, f := range j.atEnd {
			also = append(also, f(r, body)...)
		}
	}
	return also
}

// A Writer appends to one response's journal. It holds the response as folded so
// far. It is safe for concurrent use; events are stored in the order of Append.
type Writer struct {
	journal *Journal
	record  *store.Response
	owner   string
	feed    *feed

	mu   sync.Mutex
	body berth.Response // the fold of all events appended
	next int64          // the next sequence number
	err  error          // the first failed append; nothing can follow it
}

// Create saves a new response with its first events, and objects as CreateObjects
// does, and opens its journal for the lease's owner. The events are numbered from 0.
func (j *Journal) Create(ctx context.Context, r *store.Response, lease store.Lease, events []berth.Event, also ...*store.Object) (*Writer, error) {
	w := &Writer{journal: j, record: r, owner: lease.Owner, body: *r.Body}
	records, err := w.number(&w.body, events)
	if err != nil {
		return nil, err
	}
	first := w.body // the writer's own goes on changing
	r.Body = &first
	also = append(also, j.ending(r, &first)...)
	if err := j.store.CreateResponse(ctx, r, records, lease, also...); err != nil {
		return nil, err
	}
	w.feed = j.open(w.record.Project, w.body.ID, 0)
	w.feed.add(records)
	w.next = int64(len(records))
	return w, nil
}

// Resume opens the journal of a stored response for owner, who must hold its
// lease. It returns the events stored so far.
func (j *Journal) Resume(ctx context.Context, r *store.Response, owner string) (*Writer, []berth.Event, error) {
	w := &Writer{journal: j, record: r, owner: owner, body: *r.Body}
	var told []berth.Event
	for {
		records, err := j.store.Events(ctx, r.Project, r.Body.ID, w.next-1, page)
		if err != nil {
			return nil, nil, err
		}
		for _, rec := range records {
			var ev berth.Event
			if err := json.Unmarshal(rec.Data, &ev); err != nil {
				return nil, nil, fmt.Errorf("event %d of %s: %w", rec.SequenceNumber, r.Body.ID, err)
			}
			told = append(told, ev)
			w.next = rec.SequenceNumber + 1
		}
		if len(records) == 0 {
			break
		}
	}
	w.feed = j.open(w.record.Project, w.body.ID, w.next)
	return w, told, nil
}

// Err returns the error that broke the writer: nothing can be appended after it. What
// the failed append brought may have been saved; Resume finds out.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Close ends the writer's place in this process. Followers go on from the store, or
// from the writer that has resumed the response in its place.
func (w *Writer) Close() {
	w.journal.close(w.feed)
}

// Body returns the response as folded so far. Output is shared: it must not be
// changed in place.
func (w *Writer) Body() berth.Response {
	w.mu.Lock()
	defer w.mu.Unlock()
	body := w.body
	body.Output = slices.Clip(body.Output)
	return body
}

// Append numbers the events, saves them, folds them into the response and wakes
// followers. When it returns nil they are durable. After an error the writer is
// broken, because it cannot know what was saved; Append then always fails.
func (w *Writer) Append(ctx context.Context, events ...berth.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.append(ctx, events)
}

// Update appends the events that change returns for the response as it is now.
// No event slips in between, so change may use the next output index.
func (w *Writer) Update(ctx context.Context, change func(body berth.Response) []berth.Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.append(ctx, change(w.body))
}

// SetUsage sets the usage so far. It is saved with the next item or response
// event, which shows it only if it is a final one: on the wire usage is null
// until then. turns are those that are new in it and whose upstream is known.
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
		body.Output = slices.Clone(body.Output) // Body has handed the old one out
		save = &body
	}
	records, err := w.number(&body, events)
	if err != nil {
		return err
	}
	also := w.journal.ending(w.record, &body)
	// A write that has begun is not given up: nobody would know what was saved.
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

// number gives events their sequence numbers, folds them into body and renders
// them as they are stored.
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
