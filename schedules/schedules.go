// Package schedules creates responses at the times of a cron expression, or at intervals.
//
// A schedule is an object of the store that expires when it is due, and a run is a child of it that is expired until
// it has ended. So the store lists what is to be done, also after a crash. The id of a run follows from its schedule
// and its time, and a response is created with the run's id as its Idempotency-Key: each time leads to one response,
// however often the server dies, and even if two servers do the work for a moment.
package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/clock"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// Limits of schedules.
const (
	MaxRequest = 256 << 10 // bytes of a request
	maxProject = 1000      // schedules of a project
	maxRunning = 16        // runs of a project that have started; others wait
	maxQueue   = 10        // runs of a schedule that wait
	maxKept    = 100       // runs of a schedule that have ended
)

// A Status is the status of a schedule.
type Status string

// The statuses of a schedule. One that has stopped runs again when a client sets it to active; one that has ended does
// not.
const (
	Active  Status = "active"
	Paused  Status = "paused"
	Stopped Status = "stopped" // the key as which it acts may not run it any more
	Ended   Status = "ended"
)

// What becomes of times at which no server ran, and of times at which the run before has not ended.
const (
	MissedSkip     = "skip"
	MissedRunOnce  = "run_once"
	OverlapSkip    = "skip"
	OverlapQueue   = "queue"
	OverlapReplace = "cancel_previous"
)

// A Schedule creates responses.
type Schedule struct {
	ID              berth.ScheduleID  `json:"id"`
	Object          string            `json:"object"` // "schedule"
	Name            string            `json:"name"`
	Status          Status            `json:"status"`
	StatusReason    string            `json:"status_reason"`    // why it is stopped or has ended; otherwise empty
	Cron            string            `json:"cron"`             // empty with interval_seconds
	IntervalSeconds int64             `json:"interval_seconds"` // 0 with cron
	TimeZone        string            `json:"time_zone"`        // of cron: a name such as Europe/Berlin
	Missed          string            `json:"missed"`           // skip or run_once
	Overlap         string            `json:"overlap"`          // skip, queue or cancel_previous
	Container       string            `json:"container"`        // in which tools run: an id or a name; or empty
	Request         json.RawMessage   `json:"request"`          // the body of POST /v1/responses
	Limits          Limits            `json:"limits"`
	EndsAt          *int64            `json:"ends_at"`    // Unix seconds; null: never
	APIKeyID        berth.KeyID       `json:"api_key_id"` // the API key, or the person, as which it acts
	CreatedAt       int64             `json:"created_at"`
	Anchor          int64             `json:"anchor"`    // from which intervals count, in Unix seconds
	NextRuns        []int64           `json:"next_runs"` // the next times, in Unix seconds
	LastRun         *Run              `json:"last_run"`  // the last one that started; null if none did
	Runs            int64             `json:"runs"`      // that have started
	Cost            berth.Amount      `json:"cost"`      // of its runs that have ended
	Metadata        map[string]string `json:"metadata"`
}

// Limits end a schedule.
type Limits struct {
	Runs *int64        `json:"runs"` // that it starts; null: any number
	Cost *berth.Amount `json:"cost"` // of its runs together; null: any
}

// A RunStatus is the status of a run.
type RunStatus string

// The statuses of a run. Those of a run that has ended are, beside Skipped, those of its response.
const (
	Queued     RunStatus = "queued"
	InProgress RunStatus = "in_progress"
	Completed  RunStatus = "completed"
	Incomplete RunStatus = "incomplete"
	Failed     RunStatus = "failed"
	Cancelled  RunStatus = "cancelled"
	Skipped    RunStatus = "skipped"
)

// A Run is a time of a schedule, and what became of it.
type Run struct {
	ID          berth.ScheduleRunID `json:"id"`
	Object      string              `json:"object"` // "schedule.run"
	ScheduleID  berth.ScheduleID    `json:"schedule_id"`
	Trigger     string              `json:"trigger"` // schedule or manual
	Status      RunStatus           `json:"status"`
	Reason      string              `json:"reason"` // why it was skipped or has failed; otherwise empty
	ScheduledAt int64               `json:"scheduled_at"`
	StartedAt   *int64              `json:"started_at"`
	EndedAt     *int64              `json:"ended_at"`
	ResponseID  *berth.ResponseID   `json:"response_id"`
	Cost        berth.Amount        `json:"cost"`
}

// Triggers of runs.
const (
	bySchedule = "schedule"
	byHand     = "manual"
)

// A record is the body of an object of store.KindSchedule.
type record struct {
	Schedule
	NextAt int64               `json:"next_at,omitempty"` // Unix seconds; 0 if it is not due
	Begun  berth.ScheduleRunID `json:"begun,omitempty"`   // the last run that Runs counts
	Paid   berth.ScheduleRunID `json:"paid,omitempty"`    // the last run that Cost counts
}

// A runRecord is the body of an object of store.KindScheduleRun.
type runRecord struct {
	Run
	Body json.RawMessage `json:"body,omitempty"` // of the request, from the start until there is a response
	Key  berth.KeyID     `json:"key,omitempty"`  // with which it started
}

// An Auditor records actions; *audit.Log is one.
type Auditor interface {
	Commit(ctx context.Context, entries ...audit.Entry) error
}

// Options are a Service's parts. Objects is required.
type Options struct {
	Objects store.Objects
	Audit   Auditor
	Log     *slog.Logger // default slog.Default
	Clock   clock.Clock  // default clock.System
}

// A Service stores and runs schedules. It is safe for concurrent use. Its errors for clients are *berth.Error.
type Service struct {
	opts Options
	wake chan struct{}

	mu        sync.Mutex
	responses Responses
	working   map[key]*work
}

// A key names a schedule.
type key struct {
	project berth.ProjectID
	id      berth.ScheduleID
}

// New returns a service. Connect and Run make it run schedules.
func New(opts Options) *Service {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.Clock == nil {
		opts.Clock = clock.System
	}
	return &Service{opts: opts, wake: make(chan struct{}, 1), working: map[key]*work{}}
}

// Connect sets what creates responses. It must be called before Run.
func (s *Service) Connect(r Responses) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.responses = r
}

// A Change sets fields of a schedule. Nil leaves one as it is, and an EndsAt of 0 removes it.
type Change struct {
	Name            *string
	Status          *Status
	Cron            *string
	IntervalSeconds *int64
	TimeZone        *string
	Missed, Overlap *string
	Container       *string
	Request         json.RawMessage
	Limits          *Limits
	EndsAt          *int64
	Metadata        map[string]string
}

// set changes a field if there is a value.
func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// apply changes a schedule at a time, for a caller.
func (c Change) apply(r *record, caller berth.Caller, now time.Time) error {
	set(&r.Name, c.Name)
	set(&r.TimeZone, c.TimeZone)
	set(&r.Missed, c.Missed)
	set(&r.Overlap, c.Overlap)
	set(&r.Container, c.Container)
	set(&r.Limits, c.Limits)
	if c.EndsAt != nil {
		if r.EndsAt = c.EndsAt; *c.EndsAt == 0 {
			r.EndsAt = nil
		}
	}
	if c.Metadata != nil {
		r.Metadata = c.Metadata
	}
	if c.Request != nil {
		if len(c.Request) > MaxRequest {
			return berth.Invalid("request", "Invalid 'request': it has more than %d bytes.", MaxRequest)
		}
		r.Request = c.Request
	}
	again := c.Status != nil && *c.Status == Active && r.Status != Active
	if again && r.Status == Stopped || c.Request != nil || c.Container != nil {
		r.APIKeyID = caller.Key // what it does is never more than this caller may
	}
	timed := c.Cron != nil || c.IntervalSeconds != nil
	if timed {
		r.Cron, r.IntervalSeconds, r.Anchor = "", 0, now.Unix()
		set(&r.Cron, c.Cron)
		set(&r.IntervalSeconds, c.IntervalSeconds)
	}
	if c.Status != nil {
		switch {
		case r.Status == Ended && *c.Status != Ended && r.exhausted(now) != "":
			return berth.Errorf(berth.CodeConflict, "The schedule has ended: %s", r.exhausted(now))
		case *c.Status != Active && *c.Status != Paused:
			return berth.Invalid("status", "Invalid 'status': expected 'active' or 'paused'.")
		}
		r.Status, r.StatusReason = *c.Status, ""
	}
	t, err := parse(&r.Schedule)
	if err != nil {
		return err
	}
	if again || timed || c.TimeZone != nil || c.EndsAt != nil {
		next := t.next(now)
		if next.IsZero() {
			return berth.Invalid("cron", "Invalid 'cron': it has no time within five years.")
		}
		if over(r.EndsAt, next) {
			return berth.Invalid("ends_at", "Invalid 'ends_at': the schedule has no time before it.")
		}
		r.NextAt = next.Unix()
	}
	if r.Status != Active {
		r.NextAt = 0
	}
	return nil
}

// exhausted returns why a schedule cannot run again, or "".
func (r *record) exhausted(now time.Time) string {
	switch {
	case r.Limits.Runs != nil && r.Runs >= *r.Limits.Runs:
		return "It has made all runs that its limit allows."
	case r.Limits.Cost != nil && r.Cost >= *r.Limits.Cost:
		return "Its runs have spent what its limit allows."
	case over(r.EndsAt, now):
		return "Its time is over."
	}
	return ""
}

// end ends a schedule.
func (r *record) end(reason string) { r.Status, r.StatusReason, r.NextAt = Ended, reason, 0 }

// Create creates a schedule that acts as the caller.
func (s *Service) Create(ctx context.Context, c berth.Caller, change Change) (*Schedule, error) {
	if _, more, err := s.opts.Objects.ListObjects(ctx, c.Project, store.KindSchedule, "",
		store.Page{Limit: maxProject - 1}); err != nil {
		return nil, fmt.Errorf("count schedules: %w", err)
	} else if more {
		return nil, berth.Errorf(berth.CodeConflict, "The project has %d schedules, which is the limit.", maxProject)
	}
	now := s.opts.Clock.Now()
	active := Active
	if change.Status == nil {
		change.Status = &active
	}
	r := &record{Schedule: Schedule{ID: berth.ScheduleID(berth.NewID(berth.PrefixSchedule)), Object: "schedule",
		TimeZone: "UTC", Missed: MissedSkip, Overlap: OverlapSkip, APIKeyID: c.Key, CreatedAt: now.Unix(),
		Anchor: now.Unix(), Metadata: map[string]string{}}}
	if err := change.apply(r, c, now); err != nil {
		return nil, err
	}
	if r.Name == "" {
		r.Name = string(r.ID)
	}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode schedule: %w", err)
	}
	k := key{c.Project, r.ID}
	if err := s.opts.Objects.CreateObjects(ctx, c.Project, &store.Object{ObjectKey: k.object(), CreatedAt: r.CreatedAt,
		ExpiresAt: r.NextAt, Body: body}); err != nil {
		return nil, fmt.Errorf("save schedule: %w", err)
	}
	if err := s.record(ctx, c, audit.ScheduleCreated, r, ""); err != nil {
		return nil, errors.Join(err, s.opts.Objects.DeleteObject(context.WithoutCancel(ctx), c.Project, k.object()))
	}
	s.signal()
	return s.shown(r), nil
}

// Get returns a schedule.
func (s *Service) Get(ctx context.Context, p berth.ProjectID, id berth.ScheduleID) (*Schedule, error) {
	r, err := s.get(ctx, key{p, id})
	if err != nil {
		return nil, err
	}
	return s.shown(r), nil
}

// List returns one page of a project's schedules, and whether there are more.
func (s *Service) List(ctx context.Context, p berth.ProjectID, page store.Page) ([]*Schedule, bool, error) {
	objects, more, err := s.opts.Objects.ListObjects(ctx, p, store.KindSchedule, "", page)
	if err != nil {
		return nil, false, fmt.Errorf("list schedules: %w", err)
	}
	all := make([]*Schedule, len(objects))
	for i, o := range objects {
		r, err := decode[record](o)
		if err != nil {
			return nil, false, err
		}
		all[i] = s.shown(r)
	}
	return all, more, nil
}

// Update changes a schedule.
func (s *Service) Update(ctx context.Context, c berth.Caller, id berth.ScheduleID, change Change) (*Schedule, error) {
	now := s.opts.Clock.Now()
	r, err := s.update(ctx, key{c.Project, id}, func(r *record) error {
		if err := owned(r, c); err != nil {
			return err
		}
		return change.apply(r, c, now)
	})
	if err != nil {
		return nil, err
	}
	s.signal()
	return s.shown(r), s.record(ctx, c, audit.ScheduleUpdated, r, string(r.Status))
}

// Delete deletes a schedule with its runs. A response in progress continues.
func (s *Service) Delete(ctx context.Context, c berth.Caller, id berth.ScheduleID) error {
	k := key{c.Project, id}
	r, err := s.get(ctx, k)
	if err != nil {
		return err
	}
	if err := owned(r, c); err != nil {
		return err
	}
	if err := s.opts.Objects.DeleteObject(ctx, c.Project, k.object()); err != nil {
		return clientError(id, err)
	}
	return s.record(ctx, c, audit.ScheduleDeleted, r, "")
}

// Start adds a run now, under the rule for overlaps.
func (s *Service) Start(ctx context.Context, c berth.Caller, id berth.ScheduleID) (*Run, error) {
	k := key{c.Project, id}
	r, err := s.get(ctx, k)
	if err != nil {
		return nil, err
	}
	if err := owned(r, c); err != nil {
		return nil, err
	}
	if r.Status == Stopped || r.Status == Ended {
		return nil, berth.Errorf(berth.CodeConflict, "The schedule is %s: %s", r.Status, r.StatusReason)
	}
	waiting, err := s.waiting(ctx, k)
	if err != nil {
		return nil, err
	}
	if waiting > maxQueue {
		return nil, berth.Errorf(berth.CodeConflict, "%d runs of the schedule wait, which is the limit.", maxQueue)
	}
	now := s.opts.Clock.Now().Unix()
	run := &runRecord{Run: Run{ID: berth.ScheduleRunID(berth.NewID(berth.PrefixScheduleRun)), Object: "schedule.run",
		ScheduleID: id, Trigger: byHand, Status: Queued, ScheduledAt: now}}
	if err := s.addRun(ctx, k, run); err != nil {
		return nil, clientError(id, err)
	}
	s.signal()
	return &run.Run, nil
}

// waiting returns the number of a schedule's runs that have not ended, among the newest ones.
func (s *Service) waiting(ctx context.Context, k key) (int, error) {
	newest, _, err := s.opts.Objects.ListObjects(ctx, k.project, store.KindScheduleRun, string(k.id),
		store.Page{Limit: 2 * maxQueue})
	n := 0
	for _, o := range newest {
		if o.ExpiresAt != 0 {
			n++
		}
	}
	if err != nil {
		return 0, fmt.Errorf("count runs: %w", err)
	}
	return n, nil
}

// ListRuns returns one page of a schedule's runs, and whether there are more. The last 100 that have ended are kept.
func (s *Service) ListRuns(ctx context.Context, p berth.ProjectID, id berth.ScheduleID,
	page store.Page) ([]*Run, bool, error) {
	if _, err := s.get(ctx, key{p, id}); err != nil {
		return nil, false, err
	}
	objects, more, err := s.opts.Objects.ListObjects(ctx, p, store.KindScheduleRun, string(id), page)
	if err != nil {
		return nil, false, fmt.Errorf("list runs: %w", err)
	}
	all := make([]*Run, len(objects))
	for i, o := range objects {
		r, err := decode[runRecord](o)
		if err != nil {
			return nil, false, err
		}
		all[i] = &r.Run
	}
	return all, more, nil
}

// owned refuses a caller as whom the schedule does not act, unless it may manage the project.
func owned(r *record, c berth.Caller) error {
	if r.APIKeyID != c.Key && !c.May(berth.MayManage) {
		return berth.Forbidden(berth.MayManage)
	}
	return nil
}

// shownRuns is the number of the next times that a schedule shows.
const shownRuns = 3

// shown returns a schedule with its next times.
func (s *Service) shown(r *record) *Schedule {
	r.NextRuns = []int64{}
	t, err := parse(&r.Schedule)
	if err != nil || r.NextAt == 0 {
		return &r.Schedule
	}
	at := time.Unix(r.NextAt, 0)
	r.NextRuns = append(append(r.NextRuns, r.NextAt), t.upcoming(at, r.EndsAt, shownRuns-1)...)
	return &r.Schedule
}

// signal makes Run look for what is due.
func (s *Service) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// record adds an entry to the audit record.
func (s *Service) record(ctx context.Context, c berth.Caller, action audit.Action, r *record, reason string) error {
	if s.opts.Audit == nil {
		return nil
	}
	err := s.opts.Audit.Commit(ctx, audit.Entry{Action: action, Project: c.Project, Key: c.Key, Person: c.Person,
		Object: string(r.ID), Name: r.Name, Reason: reason})
	if err != nil {
		return fmt.Errorf("record schedule: %w", err)
	}
	return nil
}

// clientError returns the client's error for a schedule that does not exist.
func clientError(id berth.ScheduleID, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return berth.Errorf(berth.CodeNotFound, "Schedule with id '%s' not found.", rule.Clip(string(id)))
	}
	if err != nil {
		return fmt.Errorf("store schedule: %w", err)
	}
	return nil
}
