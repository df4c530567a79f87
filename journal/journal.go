// Package journal stores the event stream of each response. A Writer appends to it, and
// readers follow it.
//
// The engine only appends. All readers use the same Follow loop: a live stream, a stream
// resumed by starting_after, an answer without a stream, and the command line. An event is
// stored before any reader receives it.
package journal

import (
	"context"
	"fmt"
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

	watcher  store.Watcher // nil: followers of other servers' writers poll
	patience time.Duration // how long followers wait for a writer that fails to store

	mu        sync.Mutex
	feeds     map[feedKey]*feed // of the writers in this process
	lingering int               // bytes of the feeds that linger
}

// New returns a journal in a store.
func New(st store.Responses) *Journal {
	return &Journal{store: st, patience: defaultPatience, feeds: map[feedKey]*feed{}}
}

// SetPatience sets how long followers wait for a run whose events cannot be stored.
// It must not be called after the first use.
func (j *Journal) SetPatience(d time.Duration) { j.patience = d }

// Watch makes followers of responses that another server writes wait for its notifications.
// It must not be called after the first use.
func (j *Journal) Watch(w store.Watcher) { j.watcher = w }

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

// Create stores a new response with its first events and further objects, and opens its
// journal for the lease's owner. Events are numbered from 0. It returns errors of
// store.Responses.CreateResponse.
func (j *Journal) Create(ctx context.Context, r *store.Response, lease store.Lease, events []berth.Event,
	also ...*store.Object) (*Writer, error) {
	w := j.writer(r, lease.Owner)
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
	w.stored = w.next
	return w, nil
}

// Resume opens the journal of a stored response for an owner that holds its lease. It
// returns the events stored so far.
func (j *Journal) Resume(ctx context.Context, r *store.Response, owner string) (*Writer, []berth.Event, error) {
	w := j.writer(r, owner)
	var events []berth.Event
	for {
		records, err := j.store.Events(ctx, r.Project, r.Body.ID, w.next-1, page)
		if err != nil {
			return nil, nil, fmt.Errorf("read events: %w", err)
		}
		for _, rec := range records {
			ev, err := berth.DecodeEvent(rec.Data)
			if err != nil {
				return nil, nil, fmt.Errorf("event %d of %s: %w", rec.SequenceNumber, r.Body.ID, err)
			}
			events = append(events, ev)
			w.next = rec.SequenceNumber + 1
		}
		if len(records) == 0 {
			break
		}
	}
	w.stored = w.next
	w.feed = j.open(w.record.Project, w.body.ID, w.next)
	return w, events, nil
}
