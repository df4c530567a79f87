package journal

import (
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Limits of a feed after it has dropped its oldest events. It drops them at twice these
// limits. A follower that is further behind reads from the store.
const (
	feedEvents = 1024
	feedBytes  = 1 << 20
)

// A feed whose response has ended stays for a moment, for the followers that were about to
// start: the client that waits for a response that ended immediately, above all.
const (
	lingerTime  = time.Second
	lingerBytes = 8 << 20 // of all feeds that linger
)

type feedKey struct {
	project  berth.ProjectID
	response berth.ResponseID
}

// A feed holds the latest stored events of a live response in memory, so that its
// followers need not read them from the store. It is safe for concurrent use.
type feed struct {
	key feedKey

	mu     sync.Mutex
	events []store.Event // with consecutive sequence numbers from base
	base   int64
	bytes  int           // of events
	wake   chan struct{} // closed and replaced by each add
	ended  bool          // nothing is added any more

	err   error     // of the writer's failed append, or nil
	since time.Time // when appends started to fail; zero after a success
}

// add adds stored events and wakes the followers. It does not hold an event above
// store.PageBytes: followers read it from the store, within the bound of their pool.
func (f *feed) add(events []store.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(events) > 0 {
		f.since = time.Time{}
	}
	f.events = append(f.events, events...)
	drop := 0
	for i, ev := range events {
		if f.bytes += len(ev.Data); len(ev.Data) > store.PageBytes {
			drop = len(f.events) - len(events) + i + 1
		}
	}
	// Dropping half of the array in one step makes a long stream copy little.
	if len(f.events) > 2*feedEvents {
		drop = max(drop, len(f.events)-feedEvents)
	}
	if f.bytes > 2*feedBytes {
		drop = max(drop, f.beyond(feedBytes))
	}
	if drop > 0 {
		f.events = append([]store.Event(nil), f.events[drop:]...)
		f.base += int64(drop)
		f.bytes = 0
		for _, ev := range f.events {
			f.bytes += len(ev.Data)
		}
	}
	close(f.wake)
	f.wake = make(chan struct{})
}

// end ends the feed and wakes its followers. It returns the bytes that the feed holds, and
// whether it has the end of the response.
func (f *feed) end() (bytes int, final bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.ended {
		f.ended = true
		close(f.wake)
	}
	return f.bytes, f.err == nil && len(f.events) > 0 && f.events[len(f.events)-1].Type.Final()
}

// fail records the error after which the writer cannot append.
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

// beyond returns the number of the oldest events to drop so that the others have at most
// this number of bytes.
func (f *feed) beyond(most int) int {
	i := len(f.events)
	for bytes := 0; i > 0; i-- {
		if bytes += len(f.events[i-1].Data); bytes > most {
			break
		}
	}
	return i
}

// after returns the next page of events above a sequence number, and a channel that is
// closed when there are more. Events are nil if the feed does not hold them; the store has
// all events that existed when after was called. The feed may be nil.
func (f *feed) after(seq int64) ([]store.Event, <-chan struct{}) {
	if f == nil {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	i := seq + 1 - f.base
	switch {
	case f.ended && (i < 0 || i >= int64(len(f.events))):
		return nil, nil
	case i < 0:
		return nil, f.wake
	case i >= int64(len(f.events)):
		return []store.Event{}, f.wake
	}
	n, bytes := i, 0
	for n < int64(len(f.events)) && bytes+len(f.events[n].Data) <= store.PageBytes {
		bytes += len(f.events[n].Data)
		n++
	}
	// A copy, because the follower would otherwise hold all events of the array.
	return slices.Clone(f.events[i:n]), f.wake
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

// close ends a feed and wakes its followers, which continue from the store.
func (j *Journal) close(f *feed) {
	bytes, lingers := f.end()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.feeds[f.key] != f {
		return
	}
	if !lingers || j.lingering+bytes > lingerBytes {
		delete(j.feeds, f.key)
		return
	}
	j.lingering += bytes
	time.AfterFunc(lingerTime, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.lingering -= bytes
		if j.feeds[f.key] == f {
			delete(j.feeds, f.key)
		}
	})
}

func (j *Journal) live(p berth.ProjectID, id berth.ResponseID) *feed {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.feeds[feedKey{p, id}]
}
