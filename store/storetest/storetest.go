// Package storetest is the test suite of the contract of package store. Each database
// runs it.
package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

const (
	mine   berth.ProjectID = "proj_mine"
	theirs berth.ProjectID = "proj_theirs"
)

var far = time.Now().Add(time.Hour)

// Run runs the suite. open returns an empty store, and closes it with the test.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for name, f := range map[string]func(*testing.T, store.Store){
		"Responses": responses, "Append": appendEvents, "Chain": chain, "Items": items, "Runs": runs,
		"Concurrency": concurrency,
		"Files":       files, "Containers": containers, "ContainerFiles": containerFiles, "Keys": keys,
		"Projects": projects, "StoredBytes": storedBytes, "ResponseUsage": responseUsage, "ToolUsage": toolUsage,
		"UpstreamUsage": upstreamUsage, "Spending": spending, "ListResponses": listResponses,
		"ContainerUsage": containerUsage,
		"Objects":        objects, "ObjectUpdates": objectUpdates, "ObjectsWithEvents": objectsWithEvents,
		"ObjectsWithResponse": objectsWithResponse, "ContainerObjects": containerObjects,
		"WholeReads": wholeReads, "EventNumbers": eventNumbers, "EventPages": eventPages, "SizedPages": sizedPages,
		"Expiry": expiry, "Rations": rations,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, open(t))
		})
	}
}

// response returns a new response with one input item.
func response(previous berth.ResponseID) *store.Response {
	req := &berth.ResponseRequest{Model: "m", PreviousResponseID: previous}
	r := &store.Response{Project: mine, Request: req, Input: []berth.Item{item("in")},
		Body: berth.NewResponse(berth.ResponseID(berth.NewID(berth.PrefixResponse)), 7, req)}
	return r
}

func item(text string) berth.Item {
	return berth.NewItem(map[string]any{"type": "message", "id": berth.NewID("msg_"), "role": "user", "content": text,
		"unknown": map[string]any{"retained": true}})
}

func event(n int64) store.Event {
	return store.Event{SequenceNumber: n, Type: berth.EventOutputTextDelta,
		Data: json.RawMessage(fmt.Sprintf(`{"sequence_number":%d}`, n))}
}

func create(t *testing.T, s store.Store, r *store.Response) *store.Response {
	t.Helper()
	if err := s.CreateResponse(t.Context(), r, []store.Event{event(0)}, store.Lease{Owner: "me",
		Until: far}); err != nil {
		t.Fatal(err)
	}
	return r
}

// finish ends a response with output items.
func finish(t *testing.T, s store.Store, r *store.Response, output ...berth.Item) {
	t.Helper()
	body := *r.Body
	body.Status, body.Output = berth.StatusCompleted, output
	if err := s.AppendEvents(t.Context(), mine, body.ID, "me", []store.Event{event(1)}, &body); err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	g, err1 := json.MarshalIndent(got, "", " ")
	w, err2 := json.MarshalIndent(want, "", " ")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(w), string(g)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func responses(t *testing.T, s store.Store) {
	ctx := t.Context()
	r := response("")
	r.Container, r.Key, r.RequestID = "cntr_1", "key_1", "req_1"
	create(t, s, r)
	got, err := s.GetResponse(ctx, mine, r.Body.ID)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the response", got, r)
	wantErr(t, "its id again", s.CreateResponse(ctx, r, []store.Event{event(0)}, store.Lease{Owner: "me", Until: far}),
		store.ErrExists)
	_, err = s.GetResponse(ctx, theirs, r.Body.ID)
	wantErr(t, "another project's Get", err, store.ErrNotFound)
	_, err = s.Events(ctx, theirs, r.Body.ID, -1, 10)
	wantErr(t, "another project's Events", err, store.ErrNotFound)
	_, err = s.Chain(ctx, theirs, r.Body.ID)
	wantErr(t, "another project's Chain", err, store.ErrNotFound)
	wantErr(t, "another project's Append", s.AppendEvents(ctx, theirs, r.Body.ID, "me", []store.Event{event(1)}, nil),
		store.ErrNotFound)
	wantErr(t, "another project's Acquire", s.AcquireRun(ctx, theirs, r.Body.ID, store.Lease{Owner: "me", Until: far},
		time.Now()), store.ErrNotFound)
	wantErr(t, "another project's Delete", s.DeleteResponse(ctx, theirs, r.Body.ID), store.ErrNotFound)
	if err := s.DeleteResponse(ctx, mine, r.Body.ID); err != nil {
		t.Fatal(err)
	}
	_, err = s.GetResponse(ctx, mine, r.Body.ID)
	wantErr(t, "a deleted response", err, store.ErrNotFound)
	_, err = s.Events(ctx, mine, r.Body.ID, -1, 10)
	wantErr(t, "a deleted response's events", err, store.ErrNotFound)
	wantErr(t, "a second deletion", s.DeleteResponse(ctx, mine, r.Body.ID), store.ErrNotFound)
	wantErr(t, "an append to it", s.AppendEvents(ctx, mine, r.Body.ID, "me", []store.Event{event(1)}, nil),
		store.ErrNotFound)
}

func appendEvents(t *testing.T, s store.Store) {
	ctx := t.Context()
	r := create(t, s, response(""))
	id := r.Body.ID
	wantErr(t, "a gap", s.AppendEvents(ctx, mine, id, "me", []store.Event{event(2)}, nil), store.ErrConflict)
	wantErr(t, "a number again", s.AppendEvents(ctx, mine, id, "me", []store.Event{event(0)}, nil), store.ErrConflict)
	wantErr(t, "another owner", s.AppendEvents(ctx, mine, id, "you", []store.Event{event(1)}, nil), store.ErrConflict)
	body := *r.Body
	body.Output = []berth.Item{item("out")}
	if err := s.AppendEvents(ctx, mine, id, "me", []store.Event{event(1), event(2)}, &body); err != nil {
		t.Fatal(err)
	}
	if err := s.AppendEvents(ctx, mine, id, "me", []store.Event{event(3)}, nil); err != nil {
		t.Fatal(err)
	}
	got, err := s.GetResponse(ctx, mine, id)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the fold", got.Body, &body)
	for _, tc := range []struct {
		after int64
		limit int
		want  []int64
	}{{-1, 10, []int64{0, 1, 2, 3}}, {0, 2, []int64{1, 2}}, {3, 10, nil}, {99, 10, nil}} {
		events, err := s.Events(ctx, mine, id, tc.after, tc.limit)
		if err != nil {
			t.Fatal(err)
		}
		var numbers []int64
		for _, ev := range events {
			numbers = append(numbers, ev.SequenceNumber)
			same(t, "an event", ev, event(ev.SequenceNumber))
		}
		if !slices.Equal(numbers, tc.want) {
			t.Errorf("events after %d, %d at most: got %v, want %v", tc.after, tc.limit, numbers, tc.want)
		}
	}
	body.Status = berth.StatusCompleted
	if err := s.AppendEvents(ctx, mine, id, "me", []store.Event{event(4)}, &body); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "an event after the last", s.AppendEvents(ctx, mine, id, "me", []store.Event{event(5)}, nil),
		store.ErrConflict)
}

func chain(t *testing.T, s store.Store) {
	ctx := t.Context()
	a := response("")
	a.Container = "cntr_a"
	create(t, s, a)
	finish(t, s, a, item("a1"), item("a2"))
	b := create(t, s, response(a.Body.ID))
	finish(t, s, b, item("b"))
	left, right := create(t, s, response(b.Body.ID)), create(t, s, response(b.Body.ID))
	ids := func(id berth.ResponseID) (out []berth.ResponseID, items int) {
		links, err := s.Chain(ctx, mine, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			out = append(out, l.ID)
			items += len(l.Input) + len(l.Output)
		}
		return out, items
	}
	for _, leaf := range []*store.Response{left, right} {
		got, items := ids(leaf.Body.ID)
		if want := []berth.ResponseID{a.Body.ID, b.Body.ID, leaf.Body.ID}; !slices.Equal(got, want) || items != 6 {
			t.Errorf("a fork's chain: got %v with %d items, want %v with 6", got, items, want)
		}
	}
	links, err := s.Chain(ctx, mine, a.Body.ID)
	if err != nil || len(links) != 1 || links[0].Container != "cntr_a" {
		t.Errorf("the first link: %+v, %v", links, err)
	}
	passing := response("resp_only_in_memory")
	passing.Body.Store = false
	create(t, s, passing)
	// A deleted ancestor is skipped; its own ancestors remain.
	if err := s.DeleteResponse(ctx, mine, b.Body.ID); err != nil {
		t.Fatal(err)
	}
	if got, items := ids(left.Body.ID); !slices.Equal(got, []berth.ResponseID{a.Body.ID, left.Body.ID}) || items != 4 {
		t.Errorf("after a deletion in the middle: got %v with %d items", got, items)
	}
	_, err = s.Chain(ctx, mine, b.Body.ID)
	wantErr(t, "the chain of a deleted response", err, store.ErrNotFound)
}

func runs(t *testing.T, s store.Store) {
	ctx, now := t.Context(), time.Now()
	r := create(t, s, response(""))
	id := r.Body.ID
	orphans := func(at time.Time) int {
		refs, err := s.OrphanedRuns(ctx, at)
		if err != nil {
			t.Fatal(err)
		}
		return len(refs)
	}
	yours := store.Lease{Owner: "you", Until: far}
	wantErr(t, "a lease that lasts", s.AcquireRun(ctx, mine, id, yours, now), store.ErrConflict)
	if n := orphans(now); n != 0 {
		t.Errorf("%d orphans while the lease lasts", n)
	}
	if n := orphans(far.Add(time.Second)); n != 1 {
		t.Errorf("%d orphans after it, want 1", n)
	}
	if err := s.AcquireRun(ctx, mine, id, store.Lease{Owner: "me", Until: far.Add(time.Hour)}, now); err != nil {
		t.Errorf("renewal: %v", err)
	}
	wantErr(t, "a renewal", s.RenewRun(ctx, mine, id, store.Lease{Owner: "me", Until: now}), nil)
	if n := orphans(time.Now()); n != 1 {
		t.Errorf("%d orphans after the renewed lease, want 1", n)
	}
	wantErr(t, "a renewal of a lease that has ended", s.RenewRun(ctx, mine, id, store.Lease{Owner: "me",
		Until: far.Add(time.Hour)}), nil)
	wantErr(t, "another's renewal", s.RenewRun(ctx, mine, id, yours), store.ErrConflict)
	wantErr(t, "a renewal of another project's run", s.RenewRun(ctx, theirs, id, store.Lease{Owner: "me", Until: far}),
		store.ErrNotFound)
	if err := s.ReleaseRun(ctx, mine, id, "you"); err != nil {
		t.Errorf("release by another owner: got %v, want nil without an effect", err)
	}
	if n := orphans(now); n != 0 {
		t.Error("another owner released the lease")
	}
	if err := s.ReleaseOwner(ctx, "me"); err != nil {
		t.Fatal(err)
	}
	if n := orphans(now); n != 1 {
		t.Errorf("%d orphans after the owner's release, want 1", n)
	}
	wantErr(t, "a renewal of a released lease", s.RenewRun(ctx, mine, id, store.Lease{Owner: "me", Until: far}),
		store.ErrConflict)
	if err := s.AcquireRun(ctx, mine, id, yours, now); err != nil {
		t.Errorf("a free lease: %v", err)
	}
	wantErr(t, "the former owner's append", s.AppendEvents(ctx, mine, id, "me", []store.Event{event(1)}, nil),
		store.ErrConflict)
	if err := s.AcquireRun(ctx, mine, id, store.Lease{Owner: "me", Until: far}, far.Add(time.Second)); err != nil {
		t.Errorf("a lease that has ended: %v", err)
	}
	finish(t, s, r)
	wantErr(t, "the run of a response that has ended", s.AcquireRun(ctx, mine, id, yours, far.Add(time.Hour)),
		store.ErrConflict)
	wantErr(t, "a renewal of one that has ended", s.RenewRun(ctx, mine, id, store.Lease{Owner: "me", Until: far}),
		store.ErrConflict)
	if n := orphans(far.Add(time.Hour)); n != 0 {
		t.Errorf("%d orphans among final responses", n)
	}
	no := false
	unstored := response("")
	unstored.Request.Store = &no
	unstored.Body = berth.NewResponse(unstored.Body.ID, 7, unstored.Request)
	finish(t, s, create(t, s, unstored))
	if n := orphans(far.Add(time.Hour)); n != 1 {
		t.Errorf("%d orphans, want the response that is not to be stored", n)
	}
}

// Concurrent writes to many responses succeed; each response has its order.
func concurrency(t *testing.T, s store.Store) {
	const writers, each = 20, 25
	var wg sync.WaitGroup
	for range writers {
		r := create(t, s, response(""))
		wg.Go(func() {
			for n := int64(1); n <= each; n++ {
				if err := s.AppendEvents(t.Context(), mine, r.Body.ID, "me", []store.Event{event(n)}, nil); err != nil {
					t.Error(err)
					return
				}
			}
			if events, err := s.Events(t.Context(), mine, r.Body.ID, -1, 100); err != nil || len(events) != each+1 {
				t.Errorf("%d events, %v", len(events), err)
			}
		})
	}
	// Failing writes do not fail others in a shared commit.
	lost := create(t, s, response(""))
	for range writers {
		wg.Go(func() {
			err := s.AppendEvents(t.Context(), mine, lost.Body.ID, "other", []store.Event{event(1)}, nil)
			if !errors.Is(err, store.ErrConflict) {
				t.Errorf("got %v, want a conflict", err)
			}
		})
	}
	wg.Wait()
}
