package transient_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/store/storetest"
	"github.com/berth-run/berth/store/transient"
)

const project = "proj_1"

func open(t *testing.T) store.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := transient.New(db, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { s.Close() })
	return s
}

func TestConformance(t *testing.T) { storetest.Run(t, open) }

// passing is a response that is not to be stored.
func passing(id berth.ResponseID) *store.Response {
	return &store.Response{Project: project, Key: "key_1", Request: &berth.ResponseRequest{},
		Body: &berth.Response{ID: id, Object: "response", Model: "m", Status: berth.StatusInProgress,
			Output: []berth.Item{}}}
}

func event(n int64, t berth.EventType) store.Event {
	return store.Event{SequenceNumber: n, Type: t, Data: []byte(`{}`)}
}

// belowStore counts what reaches the store below.
type belowStore struct {
	store.Store
	mu      sync.Mutex
	creates int
	used    []store.Usage
	failing bool
}

func (b *belowStore) CreateResponse(ctx context.Context, r *store.Response, events []store.Event, lease store.Lease,
	also ...*store.Object) error {
	b.mu.Lock()
	b.creates++
	b.mu.Unlock()
	return b.Store.CreateResponse(ctx, r, events, lease, also...)
}

func (b *belowStore) AddUsage(_ context.Context, u *store.Usage) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failing {
		b.failing = false
		return errors.New("the disk is full")
	}
	b.used = append(b.used, *u)
	return nil
}

// A response that is not to be stored lives and ends without a write below, but for its
// usage, which is stored once for many responses.
func TestNothingBelow(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	below := &belowStore{Store: db, failing: true}
	s := transient.New(below, slog.New(slog.DiscardHandler))
	lease := store.Lease{Owner: "here", Until: time.Now().Add(time.Minute)}
	for _, id := range []berth.ResponseID{"resp_1", "resp_2"} {
		r := passing(id)
		if err := s.CreateResponse(t.Context(), r, []store.Event{event(0, berth.EventCreated)}, lease); err != nil {
			t.Fatal(err)
		}
		if err := s.CreateResponse(t.Context(), r, nil, lease); !errors.Is(err, store.ErrExists) {
			t.Errorf("the same id again: got %v", err)
		}
		if err := s.AppendEvents(t.Context(), project, id, "elsewhere",
			[]store.Event{event(1, berth.EventOutputTextDelta)}, nil); !errors.Is(err, store.ErrConflict) {
			t.Errorf("another owner: got %v", err)
		}
		if err := s.AppendEvents(t.Context(), project, id, "here", []store.Event{event(2, berth.EventOutputTextDelta)},
			nil); !errors.Is(err, store.ErrConflict) {
			t.Errorf("a gap: got %v", err)
		}
		final := *r.Body
		final.Status, final.Usage = berth.StatusCompleted, &berth.Usage{InputTokens: 3, OutputTokens: 4, TotalTokens: 7}
		if err := s.AppendEvents(t.Context(), project, id, "here", []store.Event{event(1, berth.EventOutputTextDelta),
			event(2, berth.EventCompleted)}, &final); err != nil {
			t.Fatal(err)
		}
		if err := s.AppendEvents(t.Context(), project, id, "here", []store.Event{event(3, berth.EventOutputTextDelta)},
			nil); !errors.Is(err, store.ErrConflict) {
			t.Errorf("after the end: got %v", err)
		}
		events, err := s.Events(t.Context(), project, id, 0, 10)
		if err != nil || len(events) != 2 || events[0].SequenceNumber != 1 {
			t.Errorf("got events %v, %v", events, err)
		}
		if _, err := s.Events(t.Context(), "proj_2", id, 0, 10); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("of another project: got %v", err)
		}
		if err := s.DeleteResponse(t.Context(), project, id); err != nil {
			t.Fatal(err)
		}
		if _, err := s.GetResponse(t.Context(), project, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("after the deletion: got %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if below.creates > 0 {
		t.Errorf("%d responses were stored", below.creates)
	}
	var count, in int64
	for _, u := range below.used {
		count, in = count+u.Count, in+u.InputTokens
	}
	if count != 2 || in != 6 {
		t.Errorf("usage below: %+v, want 2 responses with 6 tokens in", below.used)
	}
}
