package postgres_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/postgres"
	"github.com/berth-run/berth/store/postgres/pgtest"
)

const claimLock = 0x6265727468_03

// terminate ends the connections of stores with a database.
const terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'berth %' AND datname = current_database()"

func counter(i int) *store.Object {
	return &store.Object{ObjectKey: store.ObjectKey{Kind: "counter", ID: fmt.Sprintf("counter_%d", i)},
		Body: json.RawMessage("0")}
}

func increment(t *testing.T, db store.Store, i int) error {
	_, err := db.UpdateObject(t.Context(), "p", counter(i).ObjectKey, func(o *store.Object) error {
		var n int
		if err := json.Unmarshal(o.Body, &n); err != nil {
			return err
		}
		o.Body = json.RawMessage(fmt.Sprint(n + 1))
		return nil
	})
	return err
}

// Connections are lost at any moment of a transaction, its commit included. Each write is
// saved once, and the caller does not notice.
func TestConnectionsLost(t *testing.T) {
	url := pgtest.URL(t)
	db := open(t, url, postgres.Options{Claim: true})
	const workers, losses = 6, 25
	for i := range workers {
		if err := db.CreateObjects(t.Context(), "p", counter(i)); err != nil {
			t.Fatal(err)
		}
	}
	var saved [workers]int
	var total atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := increment(t, db, i); err != nil {
					t.Error(err)
					return
				}
				saved[i]++
				total.Add(1)
			}
		})
	}
	for n := range losses {
		for before := total.Load(); total.Load() < before+int64(3*n) && !t.Failed(); {
			time.Sleep(time.Millisecond)
		}
		execute(t, url, terminate)
	}
	close(stop)
	all.Wait()
	for i := range workers {
		o, err := db.GetObject(t.Context(), "p", counter(i).ObjectKey)
		if err != nil || string(o.Body) != fmt.Sprint(saved[i]) {
			t.Errorf("counter %d: got %v, %v, want the %d increments that were reported", i, o, err, saved[i])
		}
	}
}

// A write whose connections are lost one after another is saved once.
func TestConnectionsLostInARow(t *testing.T) {
	url := pgtest.URL(t)
	db := open(t, url, postgres.Options{Claim: true})
	if err := db.CreateObjects(t.Context(), "p", counter(0)); err != nil {
		t.Fatal(err)
	}
	calls := 0
	_, err := db.UpdateObject(t.Context(), "p", counter(0).ObjectKey, func(o *store.Object) error {
		if calls++; calls < 5 {
			execute(t, url, terminate)
		}
		o.Body = json.RawMessage(fmt.Sprint(calls))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if o, err := db.GetObject(t.Context(), "p", counter(0).ObjectKey); err != nil || string(o.Body) != "5" {
		t.Errorf("got %v, %v, want the fifth attempt", o, err)
	}
}

// While the server is stopped, writes and reads fail with ErrUnavailable; afterwards they
// succeed without further action.
func TestStopped(t *testing.T) {
	server := pgtest.Start(t)
	db := open(t, server.URL(), postgres.Options{Claim: true})
	if err := db.CreateObjects(t.Context(), "p", counter(0)); err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := increment(t, db, 0); !errors.Is(err, store.ErrUnavailable) || strings.Contains(err.Error(),
			"p4ssword") {
			t.Errorf("a write: got %v, want %v", err, store.ErrUnavailable)
		}
		if _, err := db.GetObject(t.Context(), "p", counter(0).ObjectKey); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a read: got %v, want %v", err, store.ErrUnavailable)
		}
	}
	if err := server.Run(); err != nil {
		t.Fatal(err)
	}
	if err := increment(t, db, 0); err != nil {
		t.Errorf("a write afterwards: %v", err)
	}
	if o, err := db.GetObject(t.Context(), "p", counter(0).ObjectKey); err != nil || string(o.Body) != "1" {
		t.Errorf("got %v, %v, want the write after the restart only", o, err)
	}
}

// The database fails over to a synchronous standby under load. Nothing that was acknowledged is
// missing, nothing is saved twice, and the store continues by itself.
func TestFailover(t *testing.T) {
	primary := pgtest.Start(t)
	standby := primary.Standby(t)
	db := open(t, pgtest.EitherURL(primary, standby), postgres.Options{Claim: true})
	const workers = 6
	var saved, unknown [workers]int
	var total atomic.Int64
	for i := range workers {
		if err := db.CreateObjects(t.Context(), "p", counter(i)); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				switch err := increment(t, db, i); {
				case err == nil:
					saved[i]++
					total.Add(1)
				case errors.Is(err, store.ErrUnavailable):
					unknown[i]++
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	until := func(what string, n int64) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); total.Load() < n && !t.Failed(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("timed out: %s", what)
			}
		}
	}
	until("writes", 100)
	if err := primary.Stop(); err != nil {
		t.Fatal(err)
	}
	standby.Promote(t)
	until("writes after the failover", total.Load()+100)
	close(stop)
	all.Wait()
	for i := range workers {
		o, err := db.GetObject(t.Context(), "p", counter(i).ObjectKey)
		if err != nil {
			t.Fatal(err)
		}
		var n int
		if err := json.Unmarshal(o.Body, &n); err != nil || n < saved[i] || n > saved[i]+unknown[i] {
			t.Errorf("counter %d is %d, %v, after %d acknowledged writes and %d that failed", i, n, err, saved[i],
				unknown[i])
		}
	}
}

// One server claims a database. Another one is refused, and gets the claim when the first
// one ends. Commands that do not claim it can use it in that time.
func TestClaim(t *testing.T) {
	url, keys := pgtest.URL(t), filepath.Join(t.TempDir(), "berth.keys")
	first := open(t, url, postgres.Options{Keys: keys, Claim: true, Name: "first-host"})
	_, err := postgres.Open(t.Context(), url, &postgres.Options{Keys: keys, Claim: true})
	if !errors.Is(err, postgres.ErrClaimed) || !strings.Contains(err.Error(), "first-host") {
		t.Fatalf("got %v, want %v and the name of the first server", err, postgres.ErrClaimed)
	}
	if err := open(t, url, postgres.Options{Keys: keys}).CheckWrite(t.Context()); err != nil {
		t.Errorf("a command: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, url, postgres.Options{Keys: keys, Claim: true}).CheckWrite(t.Context()); err != nil {
		t.Errorf("a successor: %v", err)
	}
}

// A server that loses its claim to another one does not write, until it has it again.
func TestClaimLost(t *testing.T) {
	url := pgtest.URL(t)
	db := open(t, url, postgres.Options{Claim: true})
	if err := db.CreateObjects(t.Context(), "p", counter(0)); err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(t.Context())
	locked := make(chan error)
	go func() {
		_, err := other.Exec(t.Context(), "SELECT pg_advisory_lock($1)", int64(claimLock))
		locked <- err
	}()
	for execute(t, url, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == int64(0) {
		time.Sleep(time.Millisecond)
	}
	execute(t, url, terminate)
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	err = increment(t, db, 0)
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, postgres.ErrClaimed) {
		t.Errorf("a write: got %v, want %v", err, postgres.ErrClaimed)
	}
	if o, err := db.GetObject(t.Context(), "p", counter(0).ObjectKey); err != nil || string(o.Body) != "0" {
		t.Errorf("a read: got %v, %v", o, err)
	}
	if _, err := other.Exec(t.Context(), "SELECT pg_advisory_unlock($1)", int64(claimLock)); err != nil {
		t.Fatal(err)
	}
	if err := increment(t, db, 0); err != nil {
		t.Errorf("a write with the claim: %v", err)
	}
}

// Leases are compared with the database's clock, which may differ from the server's.
func TestLeaseClock(t *testing.T) {
	url := pgtest.URL(t)
	clock := func(ahead string) {
		for _, name := range []string{"now", "clock_timestamp"} {
			execute(t, url,
				fmt.Sprintf(
					"CREATE OR REPLACE FUNCTION public.%s() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() + interval '%s' $$",
					name, ahead))
		}
	}
	clock("10 days")
	db := open(t, url+"&search_path=public,pg_catalog", postgres.Options{})
	req := &berth.ResponseRequest{Model: "m"}
	r := &store.Response{Project: "p", Request: req, Body: berth.NewResponse("resp_1", 1, req)}
	lease := store.Lease{Owner: "me", Until: time.Now().Add(time.Hour)}
	if err := db.CreateResponse(t.Context(), r, []store.Event{{Data: json.RawMessage("{}")}}, lease); err != nil {
		t.Fatal(err)
	}
	check := func(when string, orphans int, want error) {
		t.Helper()
		refs, err := db.OrphanedRuns(t.Context(), time.Now())
		if err != nil || len(refs) != orphans {
			t.Errorf("%s: got %d orphans, %v, want %d", when, len(refs), err, orphans)
		}
		err = db.AcquireRun(t.Context(), "p", "resp_1", store.Lease{Owner: "you", Until: time.Now().Add(time.Hour)},
			time.Now())
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", when, err, want)
		}
	}
	check("at once", 0, store.ErrConflict)
	clock("10 days 59 minutes")
	check("before its end", 0, store.ErrConflict)
	clock("10 days 61 minutes")
	check("after its end", 1, nil)
	check("after another server acquired it", 0, nil)
}

// A change by another server wakes those who wait for it.
func TestWatch(t *testing.T) {
	url, keys := pgtest.URL(t), filepath.Join(t.TempDir(), "berth.keys")
	here, there := open(t, url, postgres.Options{Keys: keys}), open(t, url, postgres.Options{Keys: keys})
	for i := range 2 {
		if err := there.CreateObjects(t.Context(), "p", counter(i)); err != nil {
			t.Fatal(err)
		}
	}
	wake, stop := here.Watch("counter_0")
	defer stop()
	// Without a change, it is woken by the poll only.
	const rounds = 20
	started := time.Now()
	for range rounds {
		select {
		case <-wake: // of the poll, perhaps
		default:
		}
		if err := increment(t, there, 0); err != nil {
			t.Fatal(err)
		}
		<-wake
	}
	if took := time.Since(started); took > rounds*time.Second/2 {
		t.Errorf("%d notifications took %v; they were the poll's", rounds, took)
	}
	execute(t, url, terminate) // the poll remains
	for range 3 {
		<-wake
	}
}
