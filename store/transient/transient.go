// Package transient holds responses that are not to be stored in memory, above a store of
// the others.
//
// A server deletes such a response when it ends, and a later server cannot resume it: its
// client is gone, and no other may read it. So nothing of it needs a disk but its usage,
// which is added up and stored once a second.
package transient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A Store stores responses with store: false in memory and everything else in the Store
// below it. It is safe for concurrent use.
type Store struct {
	store.Store
	log *slog.Logger

	mu        sync.Mutex
	responses map[key]*response

	usage usage
}

type key struct {
	project  berth.ProjectID
	response berth.ResponseID
}

// A response is a transient response. Its record and events are not changed after they
// were added.
type response struct {
	record store.Response
	events []store.Event
	lease  store.Lease
}

// New returns a Store above another. Close closes both.
func New(below store.Store, log *slog.Logger) *Store {
	s := &Store{Store: below, log: log, responses: map[key]*response{}}
	s.usage.open(below, log)
	return s
}

// Close stores the usage that was not stored yet and closes the store below.
func (s *Store) Close() error {
	s.usage.close()
	return s.Store.Close()
}

// get returns a transient response, or nil.
func (s *Store) get(p berth.ProjectID, id berth.ResponseID) *response { return s.responses[key{p, id}] }

// holds reports whether the response is transient.
func (s *Store) holds(p berth.ProjectID, id berth.ResponseID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(p, id) != nil
}

// CreateResponse implements store.Responses. A response with objects, such as the hold on
// a conversation, is stored below, because both must be stored together.
func (s *Store) CreateResponse(ctx context.Context, r *store.Response, events []store.Event, lease store.Lease,
	also ...*store.Object) error {
	if r.Body.Store || len(also) > 0 {
		return s.Store.CreateResponse(ctx, r, events, lease, also...)
	}
	if err := consecutive(0, events); err != nil {
		return err
	}
	k := key{r.Project, r.Body.ID}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.responses[k] != nil {
		return store.ErrExists
	}
	record := *r
	s.responses[k] = &response{record: record, events: events, lease: lease}
	if r.Body.Status.Final() {
		s.usage.add(r)
	}
	return nil
}

// AppendEvents implements store.Responses.
func (s *Store) AppendEvents(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string,
	events []store.Event, body *berth.Response, also ...*store.Object) error {
	if !s.holds(p, id) {
		return s.Store.AppendEvents(ctx, p, id, owner, events, body, also...)
	}
	for _, o := range also {
		if err := s.CreateObjects(ctx, p, o); err != nil && !errors.Is(err, store.ErrExists) &&
			!errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.get(p, id)
	switch {
	case r == nil:
		return store.ErrNotFound
	case r.lease.Owner != owner || r.record.Body.Status.Final():
		return store.ErrConflict
	}
	if err := consecutive(int64(len(r.events)), events); err != nil {
		return err
	}
	r.events = append(r.events, events...)
	if body == nil {
		return nil
	}
	r.record.Body = body
	if body.Status.Final() {
		s.usage.add(&r.record)
	}
	return nil
}

// consecutive returns an error unless events are numbered from next.
func consecutive(next int64, events []store.Event) error {
	for i, ev := range events {
		if ev.SequenceNumber != next+int64(i) {
			return fmt.Errorf("%w: event %d, want %d", store.ErrConflict, ev.SequenceNumber, next+int64(i))
		}
	}
	return nil
}

// GetResponse implements store.Responses.
func (s *Store) GetResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (*store.Response, error) {
	s.mu.Lock()
	if r := s.get(p, id); r != nil {
		defer s.mu.Unlock()
		record, body := r.record, *r.record.Body
		record.Body = &body
		return &record, nil
	}
	s.mu.Unlock()
	return s.Store.GetResponse(ctx, p, id)
}

// DeleteResponse implements store.Responses.
func (s *Store) DeleteResponse(ctx context.Context, p berth.ProjectID, id berth.ResponseID) error {
	s.mu.Lock()
	if r := s.get(p, id); r != nil {
		defer s.mu.Unlock()
		if !r.record.Body.Status.Final() {
			s.usage.add(&r.record)
		}
		delete(s.responses, key{p, id})
		return nil
	}
	s.mu.Unlock()
	return s.Store.DeleteResponse(ctx, p, id)
}

// ResponseState implements store.Responses.
func (s *Store) ResponseState(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (store.ResponseState,
	error) {
	s.mu.Lock()
	if r := s.get(p, id); r != nil {
		defer s.mu.Unlock()
		return store.ResponseState{Final: r.record.Body.Status.Final()}, nil
	}
	s.mu.Unlock()
	return s.Store.ResponseState(ctx, p, id)
}

// Events implements store.Responses. It reserves nothing: the events are in memory anyway.
func (s *Store) Events(ctx context.Context, p berth.ProjectID, id berth.ResponseID, after int64,
	limit int) ([]store.Event, error) {
	s.mu.Lock()
	r := s.get(p, id)
	if r == nil {
		s.mu.Unlock()
		return s.Store.Events(ctx, p, id, after, limit)
	}
	defer s.mu.Unlock()
	first := min(max(after+1, 0), int64(len(r.events)))
	end := min(first+int64(limit), int64(len(r.events)))
	bytes := 0
	for n := first; n < end; n++ {
		if bytes += len(r.events[n].Data); bytes > store.PageBytes && n > first {
			end = n
			break
		}
	}
	return r.events[first:end:end], nil
}

// AcquireRun implements store.Runs.
func (s *Store) AcquireRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease,
	now time.Time) error {
	s.mu.Lock()
	r := s.get(p, id)
	if r == nil {
		s.mu.Unlock()
		return s.Store.AcquireRun(ctx, p, id, lease, now)
	}
	defer s.mu.Unlock()
	if r.record.Body.Status.Final() || r.lease.Owner != "" && r.lease.Owner != lease.Owner && r.lease.Until.After(now) {
		return store.ErrConflict
	}
	r.lease = lease
	return nil
}

// RenewRun implements store.Runs.
func (s *Store) RenewRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, lease store.Lease) error {
	s.mu.Lock()
	r := s.get(p, id)
	if r == nil {
		s.mu.Unlock()
		return s.Store.RenewRun(ctx, p, id, lease)
	}
	defer s.mu.Unlock()
	if r.record.Body.Status.Final() || r.lease.Owner != lease.Owner {
		return store.ErrConflict
	}
	r.lease = lease
	return nil
}

// ReleaseRun implements store.Runs.
func (s *Store) ReleaseRun(ctx context.Context, p berth.ProjectID, id berth.ResponseID, owner string) error {
	s.mu.Lock()
	r := s.get(p, id)
	if r == nil {
		s.mu.Unlock()
		return s.Store.ReleaseRun(ctx, p, id, owner)
	}
	defer s.mu.Unlock()
	if r.lease.Owner == owner {
		r.lease = store.Lease{}
	}
	return nil
}

// OrphanedRuns implements store.Runs. A transient response whose lease has ended is to be
// deleted, as one below is.
func (s *Store) OrphanedRuns(ctx context.Context, now time.Time) ([]store.RunRef, error) {
	refs, err := s.Store.OrphanedRuns(ctx, now)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, r := range s.responses {
		if r.lease.Owner == "" || !r.lease.Until.After(now) {
			refs = append(refs, store.RunRef{Project: k.project, Response: k.response})
		}
	}
	return refs, nil
}

// ReleaseOwner implements store.Runs.
func (s *Store) ReleaseOwner(ctx context.Context, owner string) error {
	s.mu.Lock()
	for _, r := range s.responses {
		if r.lease.Owner == owner {
			r.lease = store.Lease{}
		}
	}
	s.mu.Unlock()
	return s.Store.ReleaseOwner(ctx, owner)
}
