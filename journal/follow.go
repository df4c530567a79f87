package journal

import (
	"context"
	"iter"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/ration"
	"github.com/berth-run/berth/store"
)

// An Event is a stored event of a response.
type Event = store.Event

// recheck is the interval at which a follower polls the store when no writer in this
// process can wake it: another server holds the run, or the run waits to be resumed.
const recheck = 250 * time.Millisecond

// defaultPatience is how long followers wait for a run whose events cannot be stored,
// unless SetPatience changes it.
const defaultPatience = 15 * time.Second

// page is the maximum number of stored events that a follower reads at a time.
const page = 512

// Follow yields the stored events of a response with sequence numbers above after (-1 for
// all), and ends after the final event. It waits for further events while the response is
// in progress. A slow reader delays no other reader. A follower holds at most one page of
// store.PageBytes, or one larger event, in memory, and waits until the pool of Bound has
// room for it.
//
// An error ends the sequence: store.ErrNotFound if the response does not exist or was
// deleted, the cause of ctx's end, or berth.CodeUnavailable. The latter means that the pool
// has no room, or that the writer in this process has failed to store events for longer
// than the journal's patience.
func (j *Journal) Follow(ctx context.Context, p berth.ProjectID, id berth.ResponseID,
	after int64) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		for events, err := range j.FollowPages(ctx, p, id, after) {
			if err != nil {
				yield(store.Event{}, err)
				return
			}
			for _, ev := range events {
				if !yield(ev, nil) {
					return
				}
			}
		}
	}
}

// FollowPages is Follow for readers that handle events faster together. A page has the
// events that are there at that moment, at least one, and is valid until the next.
func (j *Journal) FollowPages(ctx context.Context, p berth.ProjectID, id berth.ResponseID,
	after int64) iter.Seq2[[]store.Event, error] {
	return func(yield func([]store.Event, error) bool) {
		var watch <-chan struct{} // for the writer of another server
		for more := true; more; {
			var wake <-chan struct{}
			start := after
			after, wake, more = j.followPage(ctx, p, id, after, yield)
			if more && after == start {
				if err := j.live(p, id).failure(j.patience); err != nil {
					yield(nil, &berth.Error{Code: berth.CodeUnavailable, Err: err, RetryAfter: time.Second,
						Message: "The server cannot store the rest of response '" + string(id) +
							"' at the moment. Retrieve it again later."})
					return
				}
				if wake == nil && watch == nil && j.watcher != nil {
					var stop func()
					watch, stop = j.watcher.Watch(string(id))
					defer stop()
					continue // what was stored before is not notified
				}
				if err := wait(ctx, wake, watch); err != nil {
					yield(nil, err)
					return
				}
			}
		}
	}
}

// followPage yields the next page of events. It returns the last sequence number, a
// channel that is closed when there are more events, and whether to continue.
func (j *Journal) followPage(ctx context.Context, p berth.ProjectID, id berth.ResponseID, after int64,
	yield func([]store.Event, error) bool) (last int64, wake <-chan struct{}, more bool) {
	held := j.readers.Open(string(p))
	defer held.Close()
	events, wake := j.live(p, id).after(after)
	if events == nil {
		var ended bool
		var err error
		if events, ended, err = j.stored(ration.With(ctx, held), p, id, after, wake != nil); err != nil {
			yield(nil, err)
			return after, nil, false
		} else if ended {
			return after, nil, false
		}
	}
	if len(events) == 0 {
		return after, wake, true
	}
	end := events[len(events)-1]
	return end.SequenceNumber, wake, yield(events, nil) && !end.Type.Final()
}

// stored reads the next events from the store. If there are none, it reports whether the
// response has ended. A live response, which has a writer in this process, has not.
func (j *Journal) stored(ctx context.Context, p berth.ProjectID, id berth.ResponseID, after int64,
	live bool) (events []store.Event, ended bool, err error) {
	events, err = j.store.Events(ctx, p, id, after, page)
	if err != nil || len(events) > 0 || live {
		return events, false, err
	}
	state, err := j.store.ResponseState(ctx, p, id)
	if err != nil || !state.Final {
		return nil, false, err
	}
	// The end may have been stored between the two reads.
	events, err = j.store.Events(ctx, p, id, after, page)
	return events, len(events) == 0, err
}

// wait returns when there may be more events. Its error is the cause of ctx's end. watch is
// nil, or receives at least once a second.
func wait(ctx context.Context, wake, watch <-chan struct{}) error {
	again := recheck
	if watch != nil {
		again = time.Second
	}
	t := time.NewTimer(again)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-wake: // nil, and never ready, without a writer in this process
	case <-watch:
	case <-t.C:
	}
	return nil
}
