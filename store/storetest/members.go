package storetest

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Members is the suite of store.Members. open returns an empty store that implements it, and
// closes it with the test.
func Members(t *testing.T, open func(t *testing.T) store.Store) {
	for name, f := range map[string]func(*testing.T, store.Store, store.Members){
		"Lease": memberLease, "Remove": memberRemove, "RunOwner": runOwner, "Fence": fence,
		"FenceRemoved": fenceRemoved, "Lock": lock, "LockOnce": lockOnce,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			m, ok := s.(store.Members)
			if !ok {
				t.Fatalf("%T does not implement store.Members", s)
			}
			f(t, s, m)
		})
	}
}

func listMembers(t *testing.T, s store.Members) map[string]store.Member {
	t.Helper()
	list, err := s.ListMembers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(list, func(a, b store.Member) int { return len(a.ID) - len(b.ID) }) {
		t.Errorf("members are not ordered by id: %v", list)
	}
	byID := map[string]store.Member{}
	for _, m := range list {
		byID[m.ID] = m
	}
	return byID
}

func memberLease(t *testing.T, _ store.Store, s store.Members) {
	ctx := t.Context()
	a := store.Member{ID: "a", Address: "10.0.0.1:7000", Version: "v1"}
	wantErr(t, "renew an unknown member", s.RenewMember(ctx, "a", time.Hour), store.ErrNotFound)
	for _, m := range []store.Member{{ID: "bb", Address: "10.0.0.2:7000", Version: "v1"}, a} {
		wantErr(t, "join", s.JoinMember(ctx, m, time.Hour), nil)
	}
	got := listMembers(t, s)
	if len(got) != 2 || !got["a"].Alive() || got["a"].Silent < -time.Hour || got["a"].Silent > -50*time.Minute {
		t.Errorf("after joining: got %+v", got)
	}
	wantErr(t, "end the lease", s.RenewMember(ctx, "a", 0), nil)
	if got := listMembers(t, s)["a"]; got.Alive() || got.Silent > time.Minute || got.Address != a.Address ||
		got.Version != a.Version {
		t.Errorf("after the end of its lease: got %+v", got)
	}
	wantErr(t, "renew", s.RenewMember(ctx, "a", time.Hour), nil)
	if got := listMembers(t, s)["a"]; !got.Alive() {
		t.Errorf("after renewal: got %+v", got)
	}
	a.Address, a.Version = "10.0.0.9:7000", "v2"
	wantErr(t, "join again", s.JoinMember(ctx, a, time.Minute), nil)
	if got := listMembers(t, s)["a"]; got.Address != a.Address || got.Version != a.Version ||
		got.Silent > -30*time.Second || got.Silent < -time.Minute {
		t.Errorf("after joining again: got %+v", got)
	}
}

func memberRemove(t *testing.T, _ store.Store, s store.Members) {
	ctx := t.Context()
	wantErr(t, "remove an unknown member", s.RemoveMember(ctx, "a", 0), store.ErrNotFound)
	wantErr(t, "join", s.JoinMember(ctx, store.Member{ID: "a"}, time.Hour), nil)
	wantErr(t, "remove a living member", s.RemoveMember(ctx, "a", 0), store.ErrConflict)
	wantErr(t, "end the lease", s.RenewMember(ctx, "a", 0), nil)
	wantErr(t, "remove a member that is silent for too short a time", s.RemoveMember(ctx, "a", time.Hour),
		store.ErrConflict)
	wantErr(t, "remove a silent member", s.RemoveMember(ctx, "a", 0), nil)
	wantErr(t, "renew a removed member", s.RenewMember(ctx, "a", time.Hour), store.ErrNotFound)
	if got := listMembers(t, s); len(got) > 0 {
		t.Errorf("after its removal: got %+v", got)
	}
}

func runOwner(t *testing.T, st store.Store, s store.Members) {
	ctx := t.Context()
	_, err := s.RunOwner(ctx, mine, "resp_unknown")
	wantErr(t, "an unknown response", err, store.ErrNotFound)
	r := create(t, st, response(""))
	want := func(what, owner string) {
		t.Helper()
		if got, err := s.RunOwner(ctx, mine, r.Body.ID); err != nil || got != owner {
			t.Errorf("%s: got owner %q, %v; want %q", what, got, err, owner)
		}
	}
	want("a new run", "me")
	_, err = s.RunOwner(ctx, theirs, r.Body.ID)
	wantErr(t, "another project's response", err, store.ErrNotFound)
	wantErr(t, "release", st.ReleaseRun(ctx, mine, r.Body.ID, "me"), nil)
	want("a released run", "")
	now := time.Now()
	wantErr(t, "acquire", st.AcquireRun(ctx, mine, r.Body.ID, store.Lease{Owner: "other", Until: now.Add(time.Hour)},
		now), nil)
	want("an acquired run", "other")
}

// fence has a server write to a run whose lease has ended, after another one has acquired it. The
// store refuses all of it, whatever the late server believes.
func fence(t *testing.T, st store.Store, _ store.Members) {
	ctx, now := t.Context(), time.Now()
	r := create(t, st, response(""))
	id := r.Body.ID
	wantErr(t, "end the lease", st.AcquireRun(ctx, mine, id, store.Lease{Owner: "me", Until: now}, now), nil)
	wantErr(t, "take over", st.AcquireRun(ctx, mine, id, store.Lease{Owner: "other", Until: now.Add(time.Hour)},
		time.Now()), nil)
	late := func(when string, n int64) {
		t.Helper()
		body := *r.Body
		body.Status = berth.StatusFailed
		added := &store.Object{ObjectKey: store.ObjectKey{Kind: store.KindAssistant, ID: "asst_late"}, CreatedAt: 1,
			Body: []byte("{}")}
		wantErr(t, "a late write "+when, st.AppendEvents(ctx, mine, id, "me", []store.Event{event(n)}, &body, added),
			store.ErrConflict)
		wantErr(t, "a late renewal "+when, st.AcquireRun(ctx, mine, id, store.Lease{Owner: "me",
			Until: now.Add(time.Hour)}, time.Now()), store.ErrConflict)
		wantErr(t, "a late release "+when, st.ReleaseRun(ctx, mine, id, "me"), nil)
		if _, err := st.GetObject(ctx, mine, added.ObjectKey); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("an object of a late write %s: %v", when, err)
		}
	}
	late("with the same number", 1)
	wantErr(t, "the write of the new owner", st.AppendEvents(ctx, mine, id, "other", []store.Event{event(1)}, nil), nil)
	late("with the next number", 2)
	body := *r.Body
	body.Status = berth.StatusCompleted
	wantErr(t, "the end by the new owner", st.AppendEvents(ctx, mine, id, "other", []store.Event{event(2)}, &body), nil)
	wantErr(t, "release", st.ReleaseRun(ctx, mine, id, "other"), nil)
	late("after the end", 3)
	events, err := st.Events(ctx, mine, id, -1, 10)
	if err != nil || len(events) != 3 {
		t.Errorf("events: %v, %v", events, err)
	}
	if got, err := st.GetResponse(ctx, mine, id); err != nil || got.Body.Status != berth.StatusCompleted {
		t.Errorf("the response: %+v, %v", got, err)
	}
}

// fenceRemoved has a server write to its run after it was removed, before another one has acquired
// the run: what the run uses may be another server's already.
func fenceRemoved(t *testing.T, st store.Store, s store.Members) {
	ctx, now := t.Context(), time.Now()
	r := create(t, st, response(""))
	id := r.Body.ID
	hour := func(owner string) store.Lease { return store.Lease{Owner: owner, Until: now.Add(time.Hour)} }
	for _, member := range []string{"me", "other"} {
		wantErr(t, "join", s.JoinMember(ctx, store.Member{ID: member}, 0), nil)
	}
	wantErr(t, "remove another member", s.RemoveMember(ctx, "other", 0), nil)
	wantErr(t, "renew", st.RenewRun(ctx, mine, id, hour("me")), nil)
	wantErr(t, "a write", st.AppendEvents(ctx, mine, id, "me", []store.Event{event(1)}, nil), nil)
	wantErr(t, "remove", s.RemoveMember(ctx, "me", 0), nil)
	wantErr(t, "a write after removal", st.AppendEvents(ctx, mine, id, "me", []store.Event{event(2)}, nil),
		store.ErrConflict)
	wantErr(t, "a renewal after removal", st.RenewRun(ctx, mine, id, hour("me")), store.ErrConflict)
	if refs, err := st.OrphanedRuns(ctx, time.Now()); err != nil || len(refs) != 1 || refs[0].Response != id {
		t.Errorf("orphaned runs: got %v, %v, want the removed server's", refs, err)
	}
	wantErr(t, "acquire", st.AcquireRun(ctx, mine, id, hour("other"), time.Now()), nil)
	wantErr(t, "a write of the new owner", st.AppendEvents(ctx, mine, id, "other", []store.Event{event(2)}, nil), nil)
}

func lock(t *testing.T, _ store.Store, s store.Members) {
	ctx := t.Context()
	wantErr(t, "a free lock", s.Lock(ctx, "work", "a", time.Hour), nil)
	wantErr(t, "its owner again", s.Lock(ctx, "work", "a", time.Hour), nil)
	wantErr(t, "another owner", s.Lock(ctx, "work", "b", time.Hour), store.ErrConflict)
	wantErr(t, "another lock", s.Lock(ctx, "other", "b", time.Hour), nil)
	wantErr(t, "another owner's release", s.Unlock(ctx, "work", "b"), nil)
	wantErr(t, "after another owner's release", s.Lock(ctx, "work", "b", time.Hour), store.ErrConflict)
	wantErr(t, "release", s.Unlock(ctx, "work", "a"), nil)
	wantErr(t, "a released lock", s.Lock(ctx, "work", "b", 0), nil)
	wantErr(t, "a lock whose lease has ended", s.Lock(ctx, "work", "a", time.Hour), nil)
	wantErr(t, "the owner of the lease that has ended", s.Lock(ctx, "work", "b", time.Hour), store.ErrConflict)
}

// One of several servers that want a lock at the same time gets it.
func lockOnce(t *testing.T, _ store.Store, s store.Members) {
	var got atomic.Int64
	var wg sync.WaitGroup
	for _, owner := range []string{"a", "b", "c", "d", "e", "f"} {
		wg.Go(func() {
			switch err := s.Lock(t.Context(), "work", owner, time.Hour); {
			case err == nil:
				got.Add(1)
			case !errors.Is(err, store.ErrConflict):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got.Load() != 1 {
		t.Errorf("%d owners have the lock, want 1", got.Load())
	}
}
