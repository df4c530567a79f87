package journal_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

const project berth.ProjectID = "proj_test"

var lease = store.Lease{Owner: "me", Until: time.Now().Add(time.Hour)}

func open(t *testing.T) store.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

func record() *store.Response {
	req := &berth.ResponseRequest{Model: "m"}
	return &store.Response{Project: project, Request: req,
		Body: berth.NewResponse(berth.ResponseID(berth.NewID(berth.PrefixResponse)), 1, req)}
}

func create(t *testing.T, j *journal.Journal) *journal.Writer {
	t.Helper()
	r := record()
	w, err := j.Create(t.Context(), r, lease, []berth.Event{{Type: berth.EventCreated, Response: r.Body}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func delta(i int) berth.Event {
	return berth.Event{Type: berth.EventOutputTextDelta, Delta: berth.StringDelta(fmt.Sprint(i))}
}

func finish(t *testing.T, w *journal.Writer) {
	t.Helper()
	err := w.Update(t.Context(), func(body berth.Response) []berth.Event {
		body.Status = berth.StatusCompleted
		return []berth.Event{{Type: berth.EventCompleted, Response: &body}}
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
}

// numbers follows a response to its end and returns the sequence numbers seen.
func numbers(ctx context.Context, j *journal.Journal, id berth.ResponseID, after int64) ([]int64, error) {
	var seen []int64
	for ev, err := range j.Follow(ctx, project, id, after) {
		if err != nil {
			return seen, err
		}
		seen = append(seen, ev.SequenceNumber)
	}
	return seen, nil
}

func upTo(first, last int64) []int64 {
	var want []int64
	for n := first; n <= last; n++ {
		want = append(want, n)
	}
	return want
}

// Followers that come early, late, from the middle, and more than a feed's
// memory behind all see every event once, in order.
func TestFollow(t *testing.T) {
	const deltas = 5000
	j := journal.New(open(t))
	w := create(t, j)
	id := w.Body().ID
	var wg sync.WaitGroup
	follow := func(after int64) {
		wg.Go(func() {
			got, err := numbers(t.Context(), j, id, after)
			if err != nil || !slices.Equal(got, upTo(after+1, deltas+1)) {
				t.Errorf("after %d: got %d events, error %v", after, len(got), err)
			}
		})
	}
	follow(-1)
	follow(700)
	for i := range deltas {
		if err := w.Append(t.Context(), delta(i)); err != nil {
			t.Fatal(err)
		}
		if i == deltas/2 {
			follow(-1)
		}
	}
	follow(-1)
	finish(t, w)
	follow(-1)
	follow(deltas - 3)
	follow(deltas + 1) // nothing is left: it ends immediately
	wg.Wait()
}

// An event is stored before a follower sees it.
func TestSaveThenTell(t *testing.T) {
	st := open(t)
	j := journal.New(st)
	w := create(t, j)
	id := w.Body().ID
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev, err := range j.Follow(t.Context(), project, id, -1) {
			if err != nil {
				t.Error(err)
				return
			}
			stored, err := st.Events(t.Context(), project, id, ev.SequenceNumber-1, 1)
			if err != nil || len(stored) == 0 || stored[0].SequenceNumber != ev.SequenceNumber {
				t.Errorf("event %d was followed and is not stored: %v", ev.SequenceNumber, err)
			}
		}
	}()
	for i := range 200 {
		if err := w.Append(t.Context(), delta(i)); err != nil {
			t.Fatal(err)
		}
	}
	finish(t, w)
	<-done
}

func TestFollowRefused(t *testing.T) {
	j := journal.New(open(t))
	w := create(t, j)
	id := w.Body().ID
	if _, err := numbers(t.Context(), j, "resp_unknown", -1); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown response: got %v", err)
	}
	for _, err := range j.Follow(t.Context(), "proj_other", id, -1) {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("another project's live response: got %v", err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := numbers(ctx, j, id, 0); !errors.Is(err, gone) {
		t.Errorf("a follower whose context ended: got %v", err)
	}
}

// A writer of another process continues where the first stopped; followers that
// waited notice, and the first can write no more.
func TestResume(t *testing.T) {
	st := open(t)
	j := journal.New(st)
	w := create(t, j)
	id := w.Body().ID
	if err := w.Append(t.Context(), delta(0)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	seen := make(chan error)
	go func() {
		got, err := numbers(t.Context(), j, id, -1)
		if err == nil && !slices.Equal(got, upTo(0, 3)) {
			err = fmt.Errorf("saw %v", got)
		}
		seen <- err
	}()
	rec, err := st.GetResponse(t.Context(), project, id)
	if err != nil {
		t.Fatal(err)
	}
	other := journal.New(st)
	next, stored, err := other.Resume(t.Context(), rec, "me")
	if err != nil || len(stored) != 2 {
		t.Fatalf("Resume: %d events, error %v", len(stored), err)
	}
	if err := next.Append(t.Context(), delta(1)); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(t.Context(), delta(2)); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the writer that was overtaken: got %v, want a conflict", err)
	}
	finish(t, next)
	if err := <-seen; err != nil {
		t.Error(err)
	}
}

// Events with equal numbers cannot come from many goroutines of one run.
func TestConcurrentAppend(t *testing.T) {
	j := journal.New(open(t))
	w := create(t, j)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				if err := w.Append(t.Context(), delta(i), delta(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	finish(t, w)
	got, err := numbers(t.Context(), j, w.Body().ID, -1)
	if err != nil || !slices.Equal(got, upTo(0, 801)) {
		t.Errorf("got %d events, error %v", len(got), err)
	}
}

// What an end brings about is saved with it: once, and only then.
func TestEnding(t *testing.T) {
	st := open(t)
	j := journal.New(st)
	notice := store.ObjectKey{Kind: "notice", ID: "notice_1"}
	j.AtEnd(func(*store.Response, *berth.Response) []*store.Object { return nil })
	j.AtEnd(func(r *store.Response, final *berth.Response) []*store.Object {
		if r.Project != project || final.Status != berth.StatusCompleted {
			t.Errorf("the end of %s's response is %s", r.Project, final.Status)
		}
		return []*store.Object{{ObjectKey: notice, Body: []byte(`"` + final.ID + `"`)}}
	})
	w := create(t, j)
	if err := w.Append(t.Context(), delta(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := st.GetObject(t.Context(), project, notice); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("before the end: got error %v", err)
	}
	finish(t, w)
	got, err := st.GetObject(t.Context(), project, notice)
	if want := `"` + string(w.Body().ID) + `"`; err != nil || string(got.Body) != want {
		t.Errorf("after the end: got %v, %v, want %s", got, err, want)
	}
}

// A response may have ended when it is created.
func TestEndingAtOnce(t *testing.T) {
	st := open(t)
	j := journal.New(st)
	ended, begun := store.ObjectKey{Kind: "ended", ID: "1"},
		&store.Object{ObjectKey: store.ObjectKey{Kind: "begun", ID: "1"}, Body: []byte("1")}
	j.AtEnd(func(*store.Response, *berth.Response) []*store.Object {
		return []*store.Object{{ObjectKey: ended, Body: []byte("2")}}
	})
	r := record()
	r.Body.Status = berth.StatusCompleted
	w, err := j.Create(t.Context(), r, lease, []berth.Event{{Type: berth.EventCompleted, Response: r.Body}}, begun)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	for _, key := range []store.ObjectKey{begun.ObjectKey, ended} {
		if _, err := st.GetObject(t.Context(), project, key); err != nil {
			t.Errorf("%s: %v", key.Kind, err)
		}
	}
}

// countingStore counts reads of events.
type countingStore struct {
	store.Store
	reads atomic.Int64
}

func (s *countingStore) Events(ctx context.Context, p berth.ProjectID, id berth.ResponseID, after int64,
	limit int) ([]store.Event, error) {
	s.reads.Add(1)
	return s.Store.Events(ctx, p, id, after, limit)
}

// A response that ends immediately has ended before its client follows it. Its events are not
// read back from the store.
func TestEndedResponseIsFollowedFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &countingStore{Store: open(t)}
		j := journal.New(st)
		w := create(t, j)
		if err := w.Append(t.Context(), delta(0), delta(1)); err != nil {
			t.Fatal(err)
		}
		id := w.Body().ID
		finish(t, w)
		w.Close() // again
		for _, after := range []int64{-1, 1} {
			seen, err := numbers(t.Context(), j, id, after)
			if err != nil || !slices.Equal(seen, upTo(after+1, 3)) {
				t.Errorf("after %d: got %v, %v", after, seen, err)
			}
		}
		if n := st.reads.Load(); n > 0 {
			t.Errorf("got %d reads of the store", n)
		}
		if seen, err := numbers(t.Context(), j, id, 3); err != nil || len(seen) > 0 {
			t.Errorf("after the end: got %v, %v", seen, err)
		}
		if st.reads.Load() == 0 {
			t.Error("the end is not looked up in the store")
		}
		if err := st.DeleteResponse(t.Context(), project, id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // longer than it lingers
		if _, err := numbers(t.Context(), j, id, -1); !errors.Is(err, store.ErrNotFound) {
			t.Fatalf("a deleted response is still followed: %v", err)
		}
	})
}
