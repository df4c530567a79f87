package cluster_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/store"
)

// owners are members with a store whose runs have these owners.
type owners struct {
	store.Members
	of map[berth.ResponseID]string
}

func (o owners) RunOwner(_ context.Context, _ berth.ProjectID, id berth.ResponseID) (string, error) {
	owner, ok := o.of[id]
	if !ok {
		return "", store.ErrNotFound
	}
	return owner, nil
}

// kept are the containers of a server that has all but one, which b has.
type kept struct{ gaveUp atomic.Int64 }

func (k *kept) Where(_ context.Context, _ berth.ProjectID, id berth.ContainerID, aim cluster.Aim) (cluster.Place, error) {
	if id == "cntr_b" {
		return cluster.Place{Server: "b"}, nil
	}
	return cluster.Place{Taking: aim == cluster.Resume}, nil
}
func (k *kept) Running(berth.ProjectID) int                       { return 3 }
func (k *kept) Moves() bool                                       { return false }
func (k *kept) TakeOver(context.Context, func(string) bool) error { return nil }
func (k *kept) EndLost(context.Context, func(string) bool) error  { return nil }
func (k *kept) GiveUp(context.Context) error                      { k.gaveUp.Add(1); return nil }

// Where names the server that holds the run of a response, and asks the containers for theirs.
func TestWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := owners{openStore(t), map[berth.ResponseID]string{"resp_a": "a", "resp_b": "b", "resp_ended": ""}}
		a, err := cluster.Connect(t.Context(), [32]byte{}, cluster.Options{Store: st,
			Self: store.Member{ID: "a", Address: "a:7000"}, Lease: lease, Silence: 2 * lease,
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close(context.Background())
		where := func(o cluster.Object, aim cluster.Aim, want cluster.Place) {
			t.Helper()
			if got, err := a.Where(t.Context(), o, aim); err != nil || got != want {
				t.Errorf("%+v: got %+v, %v; want %+v", o, got, err, want)
			}
		}
		where(cluster.Object{Response: "resp_a"}, cluster.Use, cluster.Place{Stored: true})
		where(cluster.Object{Response: "resp_b"}, cluster.Use, cluster.Place{Server: "b", Stored: true})
		where(cluster.Object{Response: "resp_ended"}, cluster.Use, cluster.Place{Stored: true})
		where(cluster.Object{Response: "resp_unstored"}, cluster.Use, cluster.Place{})
		if _, err := a.Where(t.Context(), cluster.Object{Container: "cntr_b"}, cluster.Use); err == nil {
			t.Error("before its containers have started, a server says where one is")
		}
		if n := a.Running("proj"); n != 0 {
			t.Errorf("before its containers have started, %d run", n)
		}
		defer a.Keep(&kept{})(t.Context())
		where(cluster.Object{Container: "cntr_b"}, cluster.Use, cluster.Place{Server: "b"})
		where(cluster.Object{Container: "cntr_a"}, cluster.Use, cluster.Place{})
		where(cluster.Object{Container: "cntr_a"}, cluster.Resume, cluster.Place{Taking: true})
		if n := a.Running("proj"); n != 3 {
			t.Errorf("%d containers run, want 3", n)
		}
	})
}

// A server that was removed gives up what it kept, in order, and again until that succeeds.
func TestOnRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openStore(t)
		b, _ := join(t, db, "b", nil)
		st := &stalled{Members: db}
		a, err := cluster.Connect(t.Context(), [32]byte{}, cluster.Options{Store: st,
			Self: store.Member{ID: "a", Address: "a:7000"}, Lease: lease, Silence: 2 * lease,
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close(context.Background())
		var calls atomic.Int64
		a.OnRemoved(func(context.Context) error {
			if calls.Add(1) == 1 {
				return context.DeadlineExceeded
			}
			return nil
		})
		containers := &kept{}
		defer a.Keep(containers)(t.Context())
		st.paused.Store(true)
		until(t, "a is removed", func() bool {
			removed, err := b.RemoveSilent(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return slices.Contains(removed, "a")
		})
		st.paused.Store(false)
		until(t, "a gives up its containers", func() bool { return containers.gaveUp.Load() == 1 })
		if n := calls.Load(); n != 2 {
			t.Errorf("what was added was called %d times, want 2", n)
		}
	})
}

// A server without others has everything, excludes nobody, and reaches nobody.
func TestSolo(t *testing.T) {
	var solo cluster.Node = cluster.Solo{}
	for _, o := range []cluster.Object{{Container: "cntr_a"}, {Response: "resp_a"}} {
		if got, err := solo.Where(t.Context(), o, cluster.Resume); err != nil || got.Server != "" || got.Taking {
			t.Errorf("%+v: got %+v, %v", o, got, err)
		}
	}
	for range 2 {
		if _, err := solo.Acquire(t.Context(), "once"); err != nil {
			t.Error(err)
		}
	}
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "https://b/v1/models", nil)
	if err := solo.Forward(w, r, nil, "b"); err == nil {
		t.Error("it has forwarded a request")
	}
	r.RequestURI = ""
	if resp, err := solo.Client(berth.Caller{}, "b").Do(r); err == nil {
		resp.Body.Close()
		t.Error("it has reached another server")
	}
	began, ended := make(chan struct{}), make(chan struct{})
	stop := solo.Singleton("sweep", func(ctx context.Context) {
		close(began)
		<-ctx.Done()
		close(ended)
	})
	<-began
	if err := stop(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	default:
		t.Error("stop does not wait for the work")
	}
}
