package schedules

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
)

// A fake creates responses that end when a test says so.
type fake struct {
	mu        sync.Mutex
	bodies    map[string]string
	once      map[string]berth.ResponseID
	ends      map[berth.ResponseID]chan berth.Status
	cancelled []berth.ResponseID
	refusal   *Answer
	attempts  int
	news      chan berth.ResponseID // receives each new response
	hold      chan struct{}         // blocks Cancel until it is closed; nil: it does not
	tried     chan struct{}         // receives after each refusal
}

func newFake() *fake {
	return &fake{bodies: map[string]string{}, once: map[string]berth.ResponseID{},
		ends: map[berth.ResponseID]chan berth.Status{}, news: make(chan berth.ResponseID, 100),
		tried: make(chan struct{}, 100)}
}

func (f *fake) Create(_ context.Context, c berth.Caller, body []byte, once string) Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attempts++
	if f.refusal != nil {
		f.tried <- struct{}{}
		return *f.refusal
	}
	if id, ok := f.once[once]; ok {
		if f.bodies[once] != string(body) {
			return Answer{Status: 400, Message: "another body"}
		}
		return Answer{Status: 200, Response: id}
	}
	id := berth.ResponseID(fmt.Sprintf("resp_%d_%s", len(f.once), c.Key))
	f.once[once], f.bodies[once], f.ends[id] = id, string(body), make(chan berth.Status, 1)
	f.news <- id
	return Answer{Status: 200, Response: id}
}

func (f *fake) Cancel(_ context.Context, _ berth.Caller, id berth.ResponseID) error {
	if f.hold != nil {
		<-f.hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelled = append(f.cancelled, id)
	f.ends[id] <- berth.StatusCancelled
	return nil
}

func (f *fake) Await(ctx context.Context, _ berth.ProjectID, id berth.ResponseID) (*berth.Response, error) {
	f.mu.Lock()
	end := f.ends[id]
	f.mu.Unlock()
	select {
	case status := <-end:
		end <- status // also for the next one
		return &berth.Response{ID: id, Status: status, Berth: &berth.ResponseBerth{Usage: []berth.UpstreamUsage{{
			Cost: &berth.Cost{Value: 1e9}}}}}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (f *fake) Place(_ context.Context, _ berth.ProjectID, body []byte, ref string) ([]byte, error) {
	if ref == "gone" {
		return nil, berth.Errorf(berth.CodeNotFound, "No container 'gone' runs.")
	}
	return fmt.Appendf(nil, `{"in":%q,"request":%s}`, ref, body), nil
}

// A house is a service with a clock that the test advances.
type house struct {
	t     *testing.T
	db    store.Store
	clock *clock.Manual
	fake  *fake
	audit *entries
	svc   *Service
}

// entries are what was audited.
type entries struct {
	mu  sync.Mutex
	all []audit.Entry
}

func (e *entries) Commit(_ context.Context, more ...audit.Entry) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, more...)
	return nil
}

func (e *entries) actions() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []string
	for _, it := range e.all {
		all = append(all, strings.TrimPrefix(string(it.Action), "schedule."))
	}
	return strings.Join(all, " ")
}

func newHouse(t *testing.T) *house {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "berth.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	h := &house{t: t, db: db, fake: newFake(), audit: &entries{},
		clock: clock.NewManual(time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC))}
	h.svc = h.service()
	return h
}

// service returns another service on the same store, as after a restart.
func (h *house) service() *Service {
	s := New(Options{Objects: h.db, Audit: h.audit, Log: slog.New(slog.DiscardHandler), Clock: h.clock})
	s.Connect(h.fake)
	return s
}

// step runs one step, with works that end with the returned function.
func (h *house) step(s *Service) (stop func()) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	var works sync.WaitGroup
	if _, err := s.step(ctx, &works); err != nil {
		h.t.Fatal(err)
	}
	return func() { cancel(); works.Wait() }
}

var me = berth.Caller{Project: "proj_a", Key: "key_me", Permissions: berth.MayRun}

func value[T any](v T) *T { return &v }

// every returns a schedule of each minute, with other fields.
func (h *house) every(change Change) *Schedule {
	h.t.Helper()
	change.Request = json.RawMessage(`{"model":"m"}`)
	if change.IntervalSeconds == nil {
		change.Cron = value("* * * * *")
	}
	s, err := h.svc.Create(h.t.Context(), me, change)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

// runs returns the runs of a schedule in the order of their times, as "status reason".
func (h *house) runs(id berth.ScheduleID) (all []string) {
	h.t.Helper()
	list, _, err := h.svc.ListRuns(h.t.Context(), "proj_a", id, store.Page{Limit: 200, Ascending: true})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range list {
		at := time.Unix(r.ScheduledAt, 0).UTC().Format("15:04")
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", at, r.Status, r.Reason)))
	}
	return all
}

func (h *house) want(id berth.ScheduleID, runs ...string) {
	h.t.Helper()
	if got := h.runs(id); strings.Join(got, "|") != strings.Join(runs, "|") {
		h.t.Errorf("got runs %q, want %q", got, runs)
	}
}

// A time of the schedule leads to one response, whose end is the run's.
func TestRun(t *testing.T) {
	h := newHouse(t)
	s := h.every(Change{Name: value("nightly")})
	if s.Name != "nightly" || s.Status != Active || len(s.NextRuns) != 3 || s.NextRuns[0] != h.clock.Now().Unix()+60 {
		t.Errorf("got %+v", s)
	}
	h.step(h.svc)()
	h.want(s.ID)
	h.clock.Advance(time.Minute)
	var works sync.WaitGroup
	if _, err := h.svc.step(t.Context(), &works); err != nil {
		t.Fatal(err)
	}
	id := <-h.fake.news
	if id != "resp_0_key_me" {
		t.Errorf("got %s, want a response of the key", id)
	}
	h.fake.ends[id] <- berth.StatusCompleted
	works.Wait()
	h.want(s.ID, "10:01 completed")
	got, err := h.svc.Get(t.Context(), "proj_a", s.ID)
	if err != nil || got.Runs != 1 || got.Cost != 1e9 || got.LastRun == nil || *got.LastRun.ResponseID != id ||
		got.LastRun.Status != Completed {
		t.Errorf("got %+v, %v", got, err)
	}
	if got := h.audit.actions(); got != "created started" {
		t.Errorf("audited %s", got)
	}
}

// A server that dies at any moment leaves one response for each time.
func TestCrash(t *testing.T) {
	for _, after := range []string{"run saved", "started", "response created", "response saved"} {
		t.Run(after, func(t *testing.T) {
			h := newHouse(t)
			s := h.every(Change{Container: value("box")})
			k := key{"proj_a", s.ID}
			h.clock.Advance(time.Minute)
			at := h.clock.Now().Unix()
			run := &runRecord{Run: Run{ID: k.runID(at), Object: "schedule.run", ScheduleID: s.ID, Trigger: bySchedule,
				Status: Queued, ScheduledAt: at}}
			if err := h.svc.addRun(t.Context(), k, run); err != nil {
				t.Fatal(err)
			}
			if after != "run saved" {
				r, err := h.svc.get(t.Context(), k)
				if err != nil {
					t.Fatal(err)
				}
				if run, err = h.svc.start(t.Context(), k, r, run); err != nil {
					t.Fatal(err)
				}
			}
			if strings.HasPrefix(after, "response") {
				a := h.fake.Create(t.Context(), me, run.Body, string(run.ID))
				if after == "response saved" {
					if _, err := h.svc.updateRun(t.Context(), k, run.ID, func(r *runRecord) {
						r.ResponseID = &a.Response
					}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if after != "run saved" { // what is sent again is what was sent before
				if _, err := h.svc.Update(t.Context(), me, s.ID, Change{Container: value("other")}); err != nil {
					t.Fatal(err)
				}
			}
			var works sync.WaitGroup
			again := h.service()
			if _, err := again.step(t.Context(), &works); err != nil {
				t.Fatal(err)
			}
			id := <-h.fake.news
			h.fake.ends[id] <- berth.StatusCompleted
			works.Wait()
			h.step(h.service())()
			h.want(s.ID, "10:01 completed")
			got, err := h.svc.Get(t.Context(), "proj_a", s.ID)
			if len(h.fake.once) != 1 || err != nil || got.Runs != 1 || got.Cost != 1e9 {
				t.Errorf("got %d responses, %+v, %v", len(h.fake.once), got, err)
			}
		})
	}
}

// Two servers that both do the work add each time once.
func TestTwoServers(t *testing.T) {
	h := newHouse(t)
	s := h.every(Change{})
	h.clock.Advance(time.Minute)
	other := h.service()
	stop1, stop2 := h.step(h.svc), h.step(other)
	id := <-h.fake.news
	h.fake.ends[id] <- berth.StatusCompleted
	for h.svc.current(key{"proj_a", s.ID}) != "" || other.current(key{"proj_a", s.ID}) != "" {
		<-h.svc.wakeOf(other)
	}
	stop1()
	stop2()
	h.want(s.ID, "10:01 completed")
	if len(h.fake.once) != 1 {
		t.Errorf("got %d responses, want 1", len(h.fake.once))
	}
	if got, _ := h.svc.Get(t.Context(), "proj_a", s.ID); got.Runs != 1 {
		t.Errorf("got %d runs, want 1", got.Runs)
	}
}

// wakeOf returns a channel that receives when a run of one of two services ends.
func (s *Service) wakeOf(other *Service) <-chan struct{} {
	c := make(chan struct{}, 1)
	go func() {
		select {
		case <-s.wake:
		case <-other.wake:
		}
		c <- struct{}{}
	}()
	return c
}

// A key that may not run the request any more stops the schedule, which a key that may can set to active.
func TestStop(t *testing.T) {
	h := newHouse(t)
	s := h.every(Change{})
	h.fake.refusal = &Answer{Status: 401, Message: "The API key was deleted."}
	h.clock.Advance(time.Minute)
	var works sync.WaitGroup
	if _, err := h.svc.step(t.Context(), &works); err != nil {
		t.Fatal(err)
	}
	works.Wait()
	h.want(s.ID, "10:01 failed The API key was deleted.")
	got, _ := h.svc.Get(t.Context(), "proj_a", s.ID)
	if got.Status != Stopped || got.StatusReason != "The API key was deleted." || len(got.NextRuns) != 0 {
		t.Errorf("got %+v", got)
	}
	if got := h.audit.actions(); got != "created stopped" {
		t.Errorf("audited %s", got)
	}
	if _, err := h.svc.Start(t.Context(), me, s.ID); berth.ErrorCode(err) != berth.CodeConflict {
		t.Errorf("a stopped schedule runs: %v", err)
	}
	h.fake.refusal = nil
	other := berth.Caller{Project: "proj_a", Key: "key_other", Permissions: berth.MayRun}
	if _, err := h.svc.Update(t.Context(), other, s.ID, Change{Status: value(Active)}); berth.ErrorCode(err) !=
		berth.CodeForbidden {
		t.Errorf("another key may change it: %v", err)
	}
	other.Permissions |= berth.MayManage
	got, err := h.svc.Update(t.Context(), other, s.ID, Change{Status: value(Active)})
	if err != nil || got.APIKeyID != "key_other" || got.StatusReason != "" || len(got.NextRuns) != 3 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Limits end a schedule.
func TestLimits(t *testing.T) {
	for name, limits := range map[string]*Limits{"runs": {Runs: value(int64(2))}, "cost": {Cost: value(berth.Amount(2e9))}} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			s := h.every(Change{Limits: limits})
			var works sync.WaitGroup
			for i := range 4 {
				h.clock.Advance(time.Minute)
				if _, err := h.svc.step(t.Context(), &works); err != nil {
					t.Fatal(err)
				}
				if i < 2 {
					h.fake.ends[<-h.fake.news] <- berth.StatusCompleted
				}
				works.Wait()
			}
			h.want(s.ID, "10:01 completed", "10:02 completed")
			got, _ := h.svc.Get(t.Context(), "proj_a", s.ID)
			if got.Status != Ended || got.StatusReason == "" || got.Runs != 2 {
				t.Errorf("got %+v", got)
			}
			_, err := h.svc.Update(t.Context(), me, s.ID, Change{Status: value(Active)})
			if berth.ErrorCode(err) != berth.CodeConflict {
				t.Errorf("it continues without a higher limit: %v", err)
			}
			if got, err = h.svc.Update(t.Context(), me, s.ID, Change{Status: value(Active), Limits: &Limits{}}); err != nil ||
				got.Status != Active {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// A schedule ends after its last time.
func TestEnd(t *testing.T) {
	h := newHouse(t)
	s := h.every(Change{EndsAt: value(h.clock.Now().Unix() + 90)})
	if len(s.NextRuns) != 1 {
		t.Errorf("got %v", s.NextRuns)
	}
	var works sync.WaitGroup
	h.clock.Advance(time.Minute)
	if _, err := h.svc.step(t.Context(), &works); err != nil {
		t.Fatal(err)
	}
	h.fake.ends[<-h.fake.news] <- berth.StatusCompleted
	works.Wait()
	got, _ := h.svc.Get(t.Context(), "proj_a", s.ID)
	if got.Status != Ended {
		t.Errorf("got %+v", got)
	}
	h.want(s.ID, "10:01 completed")
	if _, err := h.svc.Create(t.Context(), me, Change{Cron: value("0 0 30 2 *"),
		Request: json.RawMessage(`{}`)}); berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("a schedule that is never due: %v", err)
	}
}

// Refusals that pass are tried again for ten minutes; others fail the run alone.
func TestRefusals(t *testing.T) {
	h := newHouse(t)
	s := h.every(Change{Limits: &Limits{Runs: value(int64(2))}})
	h.fake.refusal = &Answer{Status: 429, Message: "The project has too many responses.", RetryAfter: time.Minute}
	var works sync.WaitGroup
	h.clock.Advance(time.Minute)
	if _, err := h.svc.step(t.Context(), &works); err != nil {
		t.Fatal(err)
	}
	for range 11 { // at 10:01, 10:02, … 10:11
		<-h.fake.tried
		if err := h.clock.Await(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		h.clock.Advance(time.Minute)
	}
	works.Wait()
	if got := h.runs(s.ID)[0]; got != "10:01 failed The project has too many responses." {
		t.Errorf("got %s", got)
	}
	s2 := h.every(Change{Container: value("gone")})
	h.clock.Advance(time.Minute)
	if _, err := h.svc.step(t.Context(), &works); err != nil {
		t.Fatal(err)
	}
	works.Wait()
	if got := h.runs(s2.ID)[0]; !strings.HasSuffix(got, "failed No container 'gone' runs.") {
		t.Errorf("got %s", got)
	}
	got, _ := h.svc.Get(t.Context(), "proj_a", s2.ID)
	if got.Status != Active {
		t.Errorf("got %+v", got)
	}
}

// A paused schedule is not due, and misses nothing.
func TestPause(t *testing.T) {
	h := newHouse(t)
	s := h.every(Change{})
	if _, err := h.svc.Update(t.Context(), me, s.ID, Change{Status: value(Paused)}); err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(time.Hour)
	h.step(h.svc)()
	h.want(s.ID)
	got, err := h.svc.Update(t.Context(), me, s.ID, Change{Status: value(Active)})
	if err != nil || got.NextRuns[0] != h.clock.Now().Unix()+60 {
		t.Errorf("got %+v, %v", got, err)
	}
	h.step(h.svc)()
	h.want(s.ID)
}

// A schedule never does more than the key that last said what it does.
func TestActsAs(t *testing.T) {
	h := newHouse(t)
	s := h.every(Change{})
	manager := berth.Caller{Project: "proj_a", Key: "key_manager", Permissions: berth.MayRun | berth.MayManage}
	got, err := h.svc.Update(t.Context(), manager, s.ID, Change{Name: value("x"), Overlap: value(OverlapQueue)})
	if err != nil || got.APIKeyID != "key_me" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = h.svc.Update(t.Context(), manager, s.ID, Change{Request: json.RawMessage(`{"model":"other"}`)}); err != nil ||
		got.APIKeyID != "key_manager" {
		t.Errorf("got %+v, %v", got, err)
	}
	stranger := berth.Caller{Project: "proj_b", Key: "key_me", Permissions: berth.MayRun | berth.MayManage}
	for name, err := range map[string]error{
		"update": second(h.svc.Update(t.Context(), stranger, s.ID, Change{Name: value("y")})),
		"run":    second(h.svc.Start(t.Context(), stranger, s.ID)),
		"delete": h.svc.Delete(t.Context(), stranger, s.ID),
	} {
		if berth.ErrorCode(err) != berth.CodeNotFound {
			t.Errorf("%s of another project: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"update": second(h.svc.Update(t.Context(), me, s.ID, Change{Name: value("y")})),
		"run":    second(h.svc.Start(t.Context(), me, s.ID)),
		"delete": h.svc.Delete(t.Context(), me, s.ID),
	} {
		if berth.ErrorCode(err) != berth.CodeForbidden {
			t.Errorf("%s of another key: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// The number of schedules, of runs that wait and of runs that are kept is bounded, as is the size of a request.
func TestBounds(t *testing.T) {
	h := newHouse(t)
	_, err := h.svc.Create(t.Context(), me, Change{Cron: value("* * * * *"),
		Request: json.RawMessage(`"` + strings.Repeat("x", MaxRequest) + `"`)})
	if berth.ErrorCode(err) != berth.CodeInvalid {
		t.Errorf("a giant request: %v", err)
	}
	s := h.every(Change{Status: value(Paused)})
	for i := range maxQueue + 2 {
		if _, err := h.svc.Start(t.Context(), me, s.ID); (berth.ErrorCode(err) == berth.CodeConflict) != (i > maxQueue) {
			t.Errorf("run %d: %v", i, err)
		}
	}
	k := key{"proj_a", s.ID}
	for i := range maxKept + 20 {
		at := int64(1000 + i)
		run := &runRecord{Run: Run{ID: k.runID(at), ScheduledAt: at, EndedAt: &at, Status: Completed}}
		if err := h.svc.addRun(t.Context(), k, run); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.svc.prune(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if n := len(h.runs(s.ID)); n != maxKept+maxQueue+1 {
		t.Errorf("%d runs are kept, want %d", n, maxKept+maxQueue+1)
	}
	var more []*store.Object
	for i := 1; i < maxProject; i++ {
		more = append(more, &store.Object{ObjectKey: key{id: berth.ScheduleID(fmt.Sprint("sched_", i))}.object(),
			Body: json.RawMessage(`{}`)})
	}
	if err := h.db.CreateObjects(t.Context(), "proj_a", more...); err != nil {
		t.Fatal(err)
	}
	if _, err := h.svc.Create(t.Context(), me, Change{Cron: value("* * * * *"),
		Request: json.RawMessage(`{}`)}); berth.ErrorCode(err) != berth.CodeConflict {
		t.Errorf("more than %d schedules: %v", maxProject, err)
	}
}
