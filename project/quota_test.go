package project

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// records holds the objects of projects in memory, so that tests can use synctest.
type records struct {
	store.Objects
	mu       sync.Mutex
	projects map[berth.ProjectID]string
	err      error
	reads    int
}

func (r *records) GetObject(_ context.Context, _ berth.ProjectID, key store.ObjectKey) (*store.Object, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	if body, ok := r.projects[berth.ProjectID(key.ID)]; ok || r.err != nil {
		return &store.Object{Body: []byte(body)}, r.err
	}
	return nil, store.ErrNotFound
}

func wantError(t *testing.T, err error, wire, kind, says string, after time.Duration) {
	t.Helper()
	e, ok := errors.AsType[*berth.Error](err)
	if !ok || e.Code != berth.CodeRateLimited || e.Wire != wire || e.Type != kind || !strings.Contains(e.Message,
		says) || e.RetryAfter != after {
		t.Errorf("got %#v, want %s, %s, %q, after %v", err, wire, kind, says, after)
	}
}

func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQuota(QuotaOptions{Objects: &records{}, Limits: map[berth.ProjectID]berth.Limits{
			"": {RequestsPerMinute: number(3)}, "proj_free": {RequestsPerMinute: number(-1)},
			"proj_none": {RequestsPerMinute: number(0)}}})
		begin := func(p berth.ProjectID) error {
			end, err := q.Begin(t.Context(), berth.Caller{Project: p}, 1000)
			if err == nil {
				end(10_000)
			}
			return err
		}
		if r, tok := q.Rates("proj_a"); r != nil || tok != nil {
			t.Errorf("before it is known: got %v, %v", r, tok)
		}
		for i := range 3 {
			if err := begin("proj_a"); err != nil {
				t.Fatalf("request %d: %v", i+1, err)
			}
		}
		wantError(t, begin("proj_a"), "rate_limit_exceeded", "requests",
			"Rate limit reached for project proj_a on requests per min (RPM): Limit 3, Used 3, Requested 1. Please try again in 20s.",
			20*time.Second)
		if r, tok := q.Rates("proj_a"); *r != (Rate{3, 0, time.Minute}) || tok != nil {
			t.Errorf("got %v, %v", r, tok)
		}
		time.Sleep(20 * time.Second)
		if r, _ := q.Rates("proj_a"); *r != (Rate{3, 1, 40 * time.Second}) {
			t.Errorf("got %v", r)
		}
		if err := errors.Join(begin("proj_a"), begin("proj_b")); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if r, _ := q.Rates("proj_a"); *r != (Rate{3, 3, 0}) {
			t.Errorf("after an hour: got %v", r)
		}
		for range 100 {
			if err := begin("proj_free"); err != nil {
				t.Fatalf("without a limit: %v", err)
			}
		}
		if r, _ := q.Rates("proj_free"); r != nil {
			t.Errorf("without a limit: got %v", r)
		}
		wantError(t, begin("proj_none"), "rate_limit_exceeded", "requests", "Limit 0", -1)
	})
}

// Begin books the estimated tokens; end corrects them to the tokens used.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQuota(QuotaOptions{Objects: &records{},
			Limits: map[berth.ProjectID]berth.Limits{"": {TokensPerMinute: number(6000)}}})
		begin := func(tokens int) func(int) {
			t.Helper()
			end, err := q.Begin(t.Context(), berth.Caller{Project: "proj_a"}, tokens)
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		left := func(want int64) {
			t.Helper()
			if _, r := q.Rates("proj_a"); r.Remaining != want || r.Limit != 6000 {
				t.Errorf("got %+v, want %d left", r, want)
			}
		}
		end := begin(4000)
		left(2000)
		_, err := q.Begin(t.Context(), berth.Caller{Project: "proj_a"}, 3000)
		wantError(t, err, "rate_limit_exceeded", "tokens",
			"Rate limit reached for project proj_a on tokens per min (TPM): Limit 6000, Used 4000, Requested 3000. Please try again in 10s.",
			10*time.Second)
		_, err = q.Begin(t.Context(), berth.Caller{Project: "proj_a"}, 7000)
		wantError(t, err, "rate_limit_exceeded", "tokens",
			"Request too large for project proj_a on tokens per min (TPM): Limit 6000, Requested 7000.", -1)
		end(1000)
		left(5000)
		end = begin(5000)
		left(0)
		end(11_000) // a debt of 6000
		left(0)
		time.Sleep(time.Minute)
		left(0)
		_, err = q.Begin(t.Context(), berth.Caller{Project: "proj_a"}, 0)
		wantError(t, err, "rate_limit_exceeded", "tokens", "Requested 1", 10*time.Millisecond)
		time.Sleep(30 * time.Second)
		left(3000)
		if _, r := q.Rates("proj_a"); r.Reset != 30*time.Second {
			t.Errorf("full in %v, want 30 s", r.Reset)
		}
	})
}

func TestResponses(t *testing.T) {
	q := NewQuota(QuotaOptions{Objects: &records{},
		Limits: map[berth.ProjectID]berth.Limits{"": {Responses: number(2)}}})
	resumed := q.Resume("proj_a")
	end, err := q.Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = q.Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1)
	wantError(t, err, "rate_limit_exceeded", "requests", "on responses in progress: Limit 2, Used 2, Requested 1.",
		time.Second)
	for _, end := range []func(int){end, resumed} {
		end(5)
		again, err := q.Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		again(5)
	}
}

// A project's record overrides its limits in the configuration, which override the
// defaults. A change takes effect within a second.
func TestRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &records{projects: map[berth.ProjectID]string{"proj_a": `{"status":"active","limits":{"requests_per_minute":7}}`}}
		q := NewQuota(QuotaOptions{Objects: r, Limits: map[berth.ProjectID]berth.Limits{
			"":       {RequestsPerMinute: number(5), TokensPerMinute: number(50)},
			"proj_a": {RequestsPerMinute: number(6), TokensPerMinute: number(60)},
			"proj_b": {TokensPerMinute: number(-1)}}})
		rates := func(p berth.ProjectID) string {
			if err := q.Check(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			requests, tokens := q.Rates(p)
			if tokens == nil {
				return fmt.Sprint(requests.Remaining, " of ", requests.Limit)
			}
			return fmt.Sprint(requests.Remaining, " of ", requests.Limit, ", ", tokens.Limit)
		}
		for p, want := range map[berth.ProjectID]string{"proj_a": "7 of 7, 60", "proj_b": "5 of 5",
			"proj_c": "5 of 5, 50"} {
			if got := rates(p); got != want {
				t.Errorf("%s: got %s, want %s", p, got, want)
			}
		}
		if _, err := q.Begin(t.Context(), berth.Caller{Project: "proj_a"}, 1); err != nil {
			t.Fatal(err)
		}
		r.projects["proj_a"] = `{"status":"active","limits":{"requests_per_minute":10}}`
		if got := rates("proj_a"); got != "6 of 7, 60" {
			t.Errorf("at once: got %s", got)
		}
		reads := r.reads
		time.Sleep(time.Second)
		if got := rates("proj_a"); got != "9 of 10, 60" || r.reads != reads+1 {
			t.Errorf("a second later: got %s after %d reads", got, r.reads-reads)
		}
		r.projects["proj_a"] = `{"status":"archived"}`
		time.Sleep(time.Second)
		err := q.Check(t.Context(), "proj_a")
		if e, ok := errors.AsType[*berth.Error](err); !ok || e.Code != berth.CodeUnauthorized ||
			e.Wire != "project_archived" {
			t.Errorf("archived: got %v", err)
		}
		// If the store fails, requests are refused.
		r.err = errors.New("disk on fire")
		time.Sleep(time.Second)
		_, err1 := q.Begin(t.Context(), berth.Caller{Project: "proj_c"}, 1)
		_, err2 := q.Containers(t.Context(), "proj_c")
		for i, err := range []error{q.Check(t.Context(), "proj_c"), err1, err2, q.Store(t.Context(), "proj_c", 1)} {
			if err == nil {
				t.Errorf("call %d: got no error without the store", i)
			}
		}
	})
}

// The limits of containers and storage apply to the figures of the store.
func TestContainersAndStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(12 * time.Hour) // noon
		ctx := t.Context()
		db, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "berth.db"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		q := NewQuota(QuotaOptions{Objects: db, Sizes: []Size{db.FileBytes}, Usages: db,
			Limits: map[berth.ProjectID]berth.Limits{
				"proj_a": {Containers: number(2), ContainerMinutes: number(2), StorageBytes: number(100),
					Snapshots: number(2)}}})
		containers := func(p berth.ProjectID, want int) {
			t.Helper()
			if got, err := q.Containers(ctx, p); err != nil || got != want {
				t.Errorf("%s: got %d, %v, want %d", p, got, err, want)
			}
		}
		containers("proj_a", 2)
		containers("proj_b", -1)
		// A container that has run for three minutes.
		c := &store.Container{Project: "proj_a", Body: &berth.Container{ID: "cntr_1", Status: berth.ContainerRunning,
			MemoryLimit: "1g", CreatedAt: time.Now().Unix() - 180}}
		if err := errors.Join(db.CreateContainer(ctx, c), db.CountContainers(ctx)); err != nil {
			t.Fatal(err)
		}
		_, err = q.Containers(ctx, "proj_a")
		e, ok := errors.AsType[*berth.Error](err)
		if !ok || e.Code != berth.CodeRateLimited || e.Wire != "insufficient_quota" || e.RetryAfter != 12*time.Hour ||
			!strings.Contains(e.Message, "You exceeded your current quota.") {
			t.Errorf("got %#v, want insufficient_quota until tomorrow", err)
		}
		containers("proj_b", -1)

		if err := errors.Join(q.Snapshots(ctx, "proj_a", 1), q.Snapshots(ctx, "proj_b", 1000)); err != nil {
			t.Error(err)
		}
		wantError(t, q.Snapshots(ctx, "proj_a", 2), "insufficient_quota", "insufficient_quota",
			"has 2 snapshots and its limit is 2.", -1)

		if err := db.CreateFile(ctx, "proj_a", &berth.File{ID: "file-1", Bytes: 60}, nil); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			project berth.ProjectID
			bytes   int64
			ok      bool
		}{{"proj_a", 40, true}, {"proj_a", 41, false}, {"proj_a", math.MaxInt64, false},
			{"proj_b", math.MaxInt64, true}} {
			err := q.Store(ctx, tt.project, tt.bytes)
			if (err == nil) != tt.ok {
				t.Errorf("%d bytes for %s: got %v", tt.bytes, tt.project, err)
			}
			if !tt.ok {
				wantError(t, err, "insufficient_quota", "insufficient_quota",
					"stores 60 bytes and its limit is 100.", -1)
			}
		}
		if _, err := New(Options{Objects: db}).SetLimits(ctx, "proj_b",
			berth.Limits{StorageBytes: number(5)}); err != nil {
			t.Fatal(err)
		}
	})
}
