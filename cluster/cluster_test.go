package cluster_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// The tests run in bubbles, with the store: leases end by a clock that does not advance while anything runs.

const lease = 300 * time.Millisecond

func openStore(t *testing.T) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// join joins a server. leave ends its lease; it may be called again.
func join(t *testing.T, st store.Members, id string, removed func(context.Context) error) (c *cluster.Cluster,
	leave func()) {
	t.Helper()
	c, err := cluster.Join(t.Context(), cluster.Options{Store: st, Self: store.Member{ID: id, Address: id + ":7000"},
		Lease: lease, Silence: 2 * lease, Log: slog.New(slog.DiscardHandler), Removed: removed})
	if err != nil {
		t.Fatal(err)
	}
	leave = func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	t.Cleanup(leave)
	return c, leave
}

// until waits for a condition, by the clock of the bubble.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

func alive(t *testing.T, c *cluster.Cluster, id string) bool {
	t.Helper()
	m, err := c.Member(t.Context(), id)
	if err != nil && !errors.Is(err, cluster.ErrNoMember) {
		t.Fatal(err)
	}
	return err == nil && m.Alive()
}

// A server that leaves is silent immediately, and is removed only after it has been silent for the
// configured time. One that joins again is found.
func TestMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openStore(t)
		a, _ := join(t, db, "a", nil)
		_, leave := join(t, db, "b", nil)
		until(t, "a sees b", func() bool { return alive(t, a, "b") })
		leave()
		until(t, "a sees that b has left", func() bool { return !alive(t, a, "b") })
		if removed, err := a.RemoveSilent(t.Context()); err != nil || len(removed) > 0 {
			t.Errorf("a server that has just left was removed: %v, %v", removed, err)
		}
		if m, err := a.Member(t.Context(), "b"); err != nil || m.Address != "b:7000" {
			t.Errorf("a server that has just left: got %+v, %v", m, err)
		}
		until(t, "b is removed", func() bool {
			removed, err := a.RemoveSilent(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return slices.Equal(removed, []string{"b"})
		})
		if _, err := a.Member(t.Context(), "b"); !errors.Is(err, cluster.ErrNoMember) {
			t.Errorf("a removed server: got error %v", err)
		}
		join(t, db, "b", nil)
		until(t, "a sees b again", func() bool { return alive(t, a, "b") })
	})
}

// stalled is a store whose renewals do not arrive, as those of a paused server.
type stalled struct {
	store.Members
	paused atomic.Bool
}

func (s *stalled) RenewMember(ctx context.Context, id string, lease time.Duration) error {
	if s.paused.Load() {
		return errors.New("paused")
	}
	return s.Members.RenewMember(ctx, id, lease)
}

// A server that was paused and removed gives up what it kept, and is a member again. If it cannot
// give it up, it tries again.
func TestRemovedServerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openStore(t)
		a, _ := join(t, db, "a", nil)
		st := &stalled{Members: db}
		var calls atomic.Int64
		join(t, st, "b", func(context.Context) error {
			if calls.Add(1) == 1 {
				return errors.New("the driver does not answer")
			}
			return nil
		})
		st.paused.Store(true)
		until(t, "b is removed", func() bool {
			removed, err := a.RemoveSilent(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return slices.Contains(removed, "b")
		})
		st.paused.Store(false)
		until(t, "b gives up what it kept", func() bool { return calls.Load() == 2 })
		until(t, "b is a member again", func() bool { return alive(t, a, "b") })
	})
}

// One server at a time does a singleton's work. When it leaves, another one continues.
func TestSingleton(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openStore(t)
		var working, started atomic.Int64
		var who atomic.Value
		leaves := map[string]func(){}
		for _, id := range []string{"a", "b", "c"} {
			c, leave := join(t, db, id, nil)
			leaves[id] = leave
			c.Singleton("sweep", func(ctx context.Context) {
				if n := working.Add(1); n > 1 {
					t.Errorf("%d servers do the work", n)
				}
				who.Store(id)
				started.Add(1)
				<-ctx.Done()
				working.Add(-1)
			})
		}
		for n := int64(1); n <= 3; n++ {
			until(t, "a server starts the work", func() bool { return started.Load() == n })
			leaves[who.Load().(string)]()
		}
	})
}

// Acquire waits for the lock of another server, also for that of a server that died.
func TestAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openStore(t)
		a, _ := join(t, db, "a", nil)
		b, _ := join(t, db, "b", nil)
		release, err := a.Acquire(t.Context(), "once")
		if err != nil {
			t.Fatal(err)
		}
		impatient, cancel := context.WithTimeout(t.Context(), 3*lease) // longer than a lease: a renews it
		defer cancel()
		if _, err := b.Acquire(impatient, "once"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a lock that another server has: got error %v", err)
		}
		release()
		release, err = b.Acquire(t.Context(), "once")
		if err != nil {
			t.Fatal(err)
		}
		release()
		if err := db.Lock(t.Context(), "once", "dead", lease); err != nil {
			t.Fatal(err)
		}
		if release, err = a.Acquire(t.Context(), "once"); err != nil {
			t.Fatalf("the lock of a dead server: %v", err)
		}
		release()
	})
}

// A server whose state directory is a copy of another one's is refused while that one is alive. One that
// crashed and comes back at another address joins when its lease has ended.
func TestSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openStore(t)
		join(t, db, "a", nil)
		copied := cluster.Options{Store: db, Self: store.Member{ID: "a", Address: "elsewhere:7000"}, Lease: lease,
			Silence: 2 * lease, Log: slog.New(slog.DiscardHandler)}
		if _, err := cluster.Join(t.Context(), copied); !errors.Is(err, cluster.ErrTaken) ||
			!strings.Contains(err.Error(), "a:7000") {
			t.Errorf("a copy: got error %v", err)
		}
		if err := db.JoinMember(t.Context(), store.Member{ID: "crashed", Address: "before:7000"}, lease); err != nil {
			t.Fatal(err)
		}
		copied.Self = store.Member{ID: "crashed", Address: "after:7000"}
		c, err := cluster.Join(t.Context(), copied)
		if err != nil {
			t.Fatalf("after a crash: %v", err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
