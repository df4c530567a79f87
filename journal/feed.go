package journal

import (
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// keep is how many of the latest events a feed holds for its followers. Who is
// further behind reads from the store.
const keep = 1024

type feedKey struct {
	project  berth.ProjectID
	response berth.ResponseID
}

// A feed is the end of a live response's journal, in memory: events that are
// stored already, so that followers at the front need not read them again.
type feed struct {
	key feedKey

	mu     sync.Mutex
	events []store.Event // with consecutive sequence numbers from base
	base   int64
	wake   chan struct{} // closed and replaced by each add

	err   error     // why the writer can append nothing more; nil while it can
	since time.Time // when appends began to fail, without a success since then
}

// add takes events that have been stored and wakes the followers.
func (f *feed) add(events []store.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(events) > 0 {
		f.since = time.Time{}
	}
	f.events = append(f.events, events...)
	if drop := len(f.events) - keep; drop > keep {
		// Half of the array goes at once, so that a long stream copies little.
		f.events = append([]store.Event(nil), f.events[drop:]...)
		f.base += int64(drop)
	}
	close(f.wake)
	f.wake = make(chan struct{})
}

// fail records that the writer can append nothing more.
func (f *feed) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	if f.since.IsZero() {
		f.since = time.Now()
	}
}

// failure returns the writer's error if appends have failed for longer than patience.
// The feed may be nil.
func (f *feed) failure(patience time.Duration) error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil || time.Since(f.since) < patience {
		return nil
	}
	return f.err
}

// after returns the events above a sequence number and a channel that is closed
// when there are more. Events are nil if the feed does not have them: they must
// be read from the store, which has all that were there when after was called.
// The feed may be nil.
func (f *feed) after(seq int64) ([]store.Event, <-chan struct{}) {
	if f == nil {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := seq + 1 - f.base
	switch {
	case i < 0:
		return nil, f.wake
	case i >= int64(len(f.events)):
		return []store.Event{}, f.wake
	}
	return f.events[i:len(f.events):len(f.events)], f.wake
}

func (j *Journal) open(p berth.ProjectID, id berth.ResponseID, base int64) *feed {
	f := &feed{key: feedKey{p, id}, base: base, wake: make(chan struct{})}
	j.mu.Lock()
	defer j.mu.Unlock()
	if old := j.feeds[f.key]; old != nil {
		old.mu.Lock()
		f.since = old.since
		old.mu.Unlock()
	}
	j.feeds[f.key] = f
	return f
}

func (j *Journal) close(f *feed) {
	j.mu.Lock()
	if j.feeds[f.key] == f {
		delete(j.feeds, f.key)
	}
	j.mu.Unlock()
	f.add(nil) // followers look again, and find no feed
}

func (j *Journal) live(p berth.ProjectID, id berth.ResponseID) *feed {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.feeds[feedKey{p, id}]
}
