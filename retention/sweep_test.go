package retention_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/retention"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

var start = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// A room has a service over a database of its own.
type room struct {
	t     *testing.T
	db    store.Store
	log   *audit.Log
	clock *clock.Manual
	holds *retention.Holds
	guard *retention.Guard
}

func newRoom(t *testing.T) *room {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	log, err := audit.Open(filepath.Join(t.TempDir(), "audit"), slog.New(slog.DiscardHandler))
	check(t, err)
	t.Cleanup(func() { _ = log.Close() })
	r := &room{t: t, db: db, log: log, clock: clock.NewManual(start)}
	r.holds = &retention.Holds{Objects: db, Audit: log, Clock: r.clock}
	r.guard = retention.NewGuard(db, r.holds)
	return r
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// service returns a service that uses a database and an audit record, which may fail.
func (r *room) service(db store.Store, log retention.Auditor) *retention.Service {
	remove := func(kind store.Kind) func(context.Context, berth.ProjectID, string) error {
		return func(ctx context.Context, p berth.ProjectID, id string) error {
			return db.DeleteObject(ctx, p, store.ObjectKey{Kind: kind, ID: id})
		}
	}
	return retention.New(retention.Options{Objects: db, Audit: log, Holds: r.holds, Server: "one",
		Policies: map[berth.ProjectID]retention.Policy{"": {ExpireAfter: map[berth.Retained]time.Duration{
			berth.RetainedChatCompletions: 30 * 24 * time.Hour, berth.RetainedAudit: 365 * 24 * time.Hour}}},
		Sources: retention.Sources(db, retention.Remove{Completions: remove(store.KindCompletion),
			Traces: remove(store.KindTrace)}),
		Projects: func(context.Context) ([]berth.ProjectID, error) { return []berth.ProjectID{"proj_a", "proj_b"}, nil },
		Log:      slog.New(slog.DiscardHandler), Clock: r.clock})
}

// create creates n objects of a kind, of an age.
func (r *room) create(p berth.ProjectID, kind store.Kind, prefix string, n int, age time.Duration) (ids []string) {
	r.t.Helper()
	for i := range n {
		id := fmt.Sprintf("%s%04d", prefix, i)
		check(r.t, r.db.CreateObjects(r.t.Context(), p, &store.Object{ObjectKey: store.ObjectKey{Kind: kind, ID: id},
			CreatedAt: r.clock.Now().Add(-age).Unix(), Body: json.RawMessage(`{}`)}))
		ids = append(ids, id)
	}
	return ids
}

// left returns the ids of the objects of a kind.
func (r *room) left(p berth.ProjectID, kind store.Kind) (ids []string) {
	r.t.Helper()
	list, _, err := r.db.ListObjects(r.t.Context(), p, kind, "", store.Page{Limit: 10_000, Ascending: true})
	check(r.t, err)
	for _, o := range list {
		ids = append(ids, o.ID)
	}
	return ids
}

// ended returns the ids of all records of a project, which must be complete and each have one entry in the audit record.
func (r *room) ended(p berth.ProjectID) (ids []string) {
	r.t.Helper()
	s := r.service(r.db, r.log)
	list, _, err := s.Records(r.t.Context(), p, store.Page{Limit: 1000})
	check(r.t, err)
	entries, _, err := r.log.Latest(r.t.Context(), audit.Query{Project: p, Action: audit.RetentionEnded, Before: 1 << 60,
		Limit: 1000})
	check(r.t, err)
	if len(entries) != len(list) {
		r.t.Errorf("%d records have %d entries in the audit record", len(list), len(entries))
	}
	for _, one := range list {
		full, err := s.Record(r.t.Context(), p, one.ID)
		check(r.t, err)
		at := slices.IndexFunc(entries, func(e *audit.Entry) bool { return e.Object == one.ID })
		if at < 0 {
			r.t.Fatalf("record %s has no entry", one.ID)
		}
		if e := entries[at]; e.Digest != retention.Digest(full.IDs) || e.Digest != full.Digest ||
			e.Count != int64(len(full.IDs)) || full.Count != e.Count || e.Name != string(full.Kind) ||
			full.CompletedAt == nil || full.Checkpoint == "" {
			r.t.Errorf("record %+v has the entry %+v", full, e)
		}
		ids = append(ids, full.IDs...)
	}
	slices.Sort(ids)
	return ids
}

const days = 24 * time.Hour

// Objects older than their project allows end, and no others.
func TestSweep(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	s := r.service(r.guard, r.log)
	old := r.create("proj_a", store.KindCompletion, "old", 250, 31*days)
	young := r.create("proj_a", store.KindCompletion, "young", 5, 29*days)
	threads := r.create("proj_a", store.KindThread, "thread", 3, 400*days)
	theirs := r.create("proj_b", store.KindCompletion, "theirs", 3, 8*days)
	traces := r.create("proj_b", store.KindTrace, "trace", 2, 31*days)
	_, err := s.Set(t.Context(), berth.Caller{Project: "proj_b"}, berth.RetentionSettings{
		ExpireAfter: map[berth.Retained]int64{berth.RetainedChatCompletions: 7 * 24 * 3600}})
	check(t, err)
	check(t, s.Sweep(t.Context()))
	for p, want := range map[berth.ProjectID][]string{"proj_a": old, "proj_b": slices.Concat(theirs, traces)} {
		if diff := cmp.Diff(want, r.ended(p)); diff != "" {
			t.Errorf("ended of %s (-want +got):\n%s", p, diff)
		}
	}
	if diff := cmp.Diff(young, r.left("proj_a", store.KindCompletion)); diff != "" {
		t.Errorf("completions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(threads, r.left("proj_a", store.KindThread)); diff != "" {
		t.Errorf("threads without a policy (-want +got):\n%s", diff)
	}
	r.clock.Advance(2 * days)
	check(t, s.Sweep(t.Context()))
	if left := r.left("proj_a", store.KindCompletion); left != nil {
		t.Errorf("two days later, %v are left", left)
	}
	r.clock.Advance(366 * days) // the records themselves end as the audit record does
	check(t, s.Sweep(t.Context()))
	if left := r.left("proj_a", store.KindRetentionRecord); left != nil {
		t.Errorf("records %v are left", left)
	}
}

var errCrash = errors.New("killed")

// A fuse kills the process at its last write: before the write, or after it was saved and before the caller knows.
type fuse struct {
	left  int
	after bool
}

func (f *fuse) write(do func() error) error {
	if f.left--; f.left > 0 {
		return do()
	}
	if f.left < 0 {
		return errCrash // nothing happens after the death
	}
	if f.after {
		_ = do()
	}
	return errCrash
}

type mortalStore struct {
	store.Store
	fuse *fuse
}

func (m mortalStore) CreateObjects(ctx context.Context, p berth.ProjectID, o ...*store.Object) error {
	return m.fuse.write(func() error { return m.Store.CreateObjects(ctx, p, o...) })
}

func (m mortalStore) UpdateObject(ctx context.Context, p berth.ProjectID, k store.ObjectKey,
	change func(*store.Object) error) (o *store.Object, err error) {
	err = m.fuse.write(func() error { o, err = m.Store.UpdateObject(ctx, p, k, change); return err })
	return o, err
}

func (m mortalStore) DeleteObject(ctx context.Context, p berth.ProjectID, k store.ObjectKey) error {
	return m.fuse.write(func() error { return m.Store.DeleteObject(ctx, p, k) })
}

type mortalLog struct {
	*audit.Log
	fuse *fuse
}

func (m mortalLog) Commit(ctx context.Context, e ...audit.Entry) error {
	return m.fuse.write(func() error { return m.Log.Commit(ctx, e...) })
}

// A server that is killed at any write of a sweep, and again during the next, loses and doubles nothing.
func TestSweepKilled(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		for writes := 1; ; writes++ {
			r := newRoom(t)
			old := r.create("proj_a", store.KindCompletion, "old", 6, 31*days)
			young := r.create("proj_a", store.KindCompletion, "young", 2, time.Hour)
			first := &fuse{left: writes, after: after}
			died := r.service(mortalStore{r.guard, first}, mortalLog{r.log, first}).Sweep(t.Context())
			r.clock.Advance(time.Minute)
			second := &fuse{left: 2, after: !after}
			_ = r.service(mortalStore{r.guard, second}, mortalLog{r.log, second}).Sweep(t.Context())
			r.clock.Advance(time.Minute)
			check(t, r.service(r.guard, r.log).Sweep(t.Context()))
			if diff := cmp.Diff(old, r.ended("proj_a")); diff != "" {
				t.Errorf("killed at write %d (after: %v): ended (-want +got):\n%s", writes, after, diff)
			}
			if diff := cmp.Diff(young, r.left("proj_a", store.KindCompletion)); diff != "" {
				t.Errorf("killed at write %d (after: %v): left (-want +got):\n%s", writes, after, diff)
			}
			if died == nil {
				break
			}
			if writes > 100 {
				t.Fatal("the sweep does not end")
			}
		}
	}
}

// A hold in the midst of many objects stops their deletion and that of no other.
func TestSweepHeld(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	s := r.service(r.guard, r.log)
	old := r.create("proj_a", store.KindCompletion, "old", 350, 31*days)
	admin := berth.Caller{Project: berth.AdminProject, Key: "key_1"}
	held := []string{old[0], old[99], old[100], old[349]}
	for _, id := range held {
		_, err := r.holds.Create(t.Context(), "proj_a", admin, berth.Hold{ObjectID: id, Reason: "a case"})
		check(t, err)
	}
	check(t, s.Sweep(t.Context()))
	if diff := cmp.Diff(held, r.left("proj_a", store.KindCompletion)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if n := len(r.ended("proj_a")); n != 346 {
		t.Errorf("%d objects ended", n)
	}
	whole, err := r.holds.Create(t.Context(), "proj_a", admin, berth.Hold{Reason: "all"})
	check(t, err)
	more := r.create("proj_a", store.KindCompletion, "more", 3, 31*days)
	check(t, s.Sweep(t.Context()))
	if diff := cmp.Diff(slices.Concat(held, more), r.left("proj_a", store.KindCompletion)); diff != "" {
		t.Errorf("in a held project (-want +got):\n%s", diff)
	}
	check(t, r.holds.Release(t.Context(), "proj_a", admin, whole.ID))
	check(t, s.Sweep(t.Context()))
	if diff := cmp.Diff(held, r.left("proj_a", store.KindCompletion)); diff != "" {
		t.Errorf("after the release (-want +got):\n%s", diff)
	}
}
