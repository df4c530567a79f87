package schedules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

const (
	poll       = 5 * time.Second // for changes of other servers
	retryAfter = 5 * time.Second // after the store has failed
	grace      = time.Minute     // a time that is longer past counts as missed
	maxDue     = 1000            // schedules listed at a time
	maxActive  = 10_000          // runs listed at a time
)

// A work is the run of a schedule that this process works on.
type work struct {
	run    berth.ScheduleRunID
	cancel context.CancelCauseFunc
}

// errSuperseded is the cause of the cancellation of a run that another one replaces.
var errSuperseded = errors.New("the next run has replaced it")

// Run runs schedules until ctx ends, including the runs that an earlier process did not end. In a cluster, one server
// does it at a time.
func (s *Service) Run(ctx context.Context) {
	var works sync.WaitGroup
	defer works.Wait()
	for {
		wait, err := s.step(ctx, &works)
		if err != nil && ctx.Err() == nil {
			s.opts.Log.Error("failed to list schedules; will retry", "err", err)
			wait = retryAfter
		}
		timer := make(chan struct{})
		alarm := s.opts.Clock.AfterFunc(wait, func() { close(timer) })
		select {
		case <-ctx.Done():
			alarm.Stop()
			return
		case <-s.wake:
		case <-timer:
		}
		alarm.Stop()
	}
}

// step adds the runs that are due, works on runs, and returns the time until the next step.
func (s *Service) step(ctx context.Context, works *sync.WaitGroup) (time.Duration, error) {
	now := s.opts.Clock.Now()
	due, err := s.opts.Objects.ExpiredObjects(ctx, store.KindSchedule, now, maxDue)
	if err != nil {
		return 0, fmt.Errorf("list schedules that are due: %w", err)
	}
	for _, ref := range due {
		k := key{ref.Project, berth.ScheduleID(ref.ID)}
		if err := s.fire(ctx, k); err != nil && ctx.Err() == nil {
			s.opts.Log.Error("failed to add a run of a schedule; will retry", "schedule", k.id, "err", err)
		}
	}
	if err := s.dispatch(ctx, works); err != nil {
		return 0, err
	}
	return s.untilNext(ctx)
}

// untilNext returns the time until a schedule is due, at most poll.
func (s *Service) untilNext(ctx context.Context) (time.Duration, error) {
	now := s.opts.Clock.Now()
	soon, err := s.opts.Objects.ExpiredObjects(ctx, store.KindSchedule, now.Add(poll), 1)
	if err != nil {
		return 0, fmt.Errorf("list schedules: %w", err)
	}
	if len(soon) == 0 {
		return poll, nil
	}
	r, err := s.get(ctx, key{soon[0].Project, berth.ScheduleID(soon[0].ID)})
	if err != nil {
		return poll, nil // it was deleted, or fire tells
	}
	return min(poll, max(time.Unix(r.NextAt, 0).Sub(now), time.Second/10)), nil
}

// fire adds the run that is due and sets the next time. After a crash between the two, it finds the run.
func (s *Service) fire(ctx context.Context, k key) error {
	r, err := s.get(ctx, k)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	now := s.opts.Clock.Now()
	due := time.Unix(r.NextAt, 0)
	if r.NextAt == 0 || due.After(now) {
		return nil // another server has done it
	}
	t, err := parse(&r.Schedule)
	if err != nil { // the time zone is gone from the database of the system
		return s.stop(ctx, k, r, err)
	}
	run := &runRecord{Run: Run{ID: k.runID(r.NextAt), Object: "schedule.run", ScheduleID: k.id, Trigger: bySchedule,
		Status: Queued, ScheduledAt: r.NextAt}}
	next := t.next(due)
	if now.Sub(due) > grace {
		if r.Missed == MissedRunOnce {
			next = t.next(now)
		} else {
			next = t.next(now.Add(-grace))
			run.skip("No server ran at this time.", now)
		}
	}
	if err := s.addRun(ctx, k, run); err != nil && !errors.Is(err, store.ErrExists) {
		return clientError(k.id, err)
	}
	_, err = s.update(ctx, k, func(now *record) error {
		if now.NextAt != r.NextAt {
			return nil
		}
		now.NextAt = next.Unix()
		if next.IsZero() || over(now.EndsAt, next) {
			now.end("Its time is over.")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.prune(ctx, k)
}

// skip ends a run that has not started.
func (r *runRecord) skip(reason string, now time.Time) {
	at := now.Unix()
	r.Status, r.Reason, r.EndedAt = Skipped, reason, &at
}

// dispatch works on runs that have not ended. The runs of a schedule run one after another.
func (s *Service) dispatch(ctx context.Context, works *sync.WaitGroup) error {
	// the clock may have been set back
	refs, err := s.opts.Objects.ExpiredObjects(ctx, store.KindScheduleRun, s.opts.Clock.Now().Add(time.Hour), maxActive)
	if err != nil {
		return fmt.Errorf("list runs: %w", err)
	}
	var order []key
	of := map[key][]berth.ScheduleRunID{}
	for _, ref := range refs {
		k := key{ref.Project, berth.ScheduleID(ref.Parent)}
		if of[k] == nil {
			order = append(order, k)
		}
		of[k] = append(of[k], berth.ScheduleRunID(ref.ID))
	}
	for _, k := range order {
		if err := s.dispatchRuns(ctx, k, of[k], works); err != nil && ctx.Err() == nil {
			s.opts.Log.Error("failed to work on the runs of a schedule; will retry", "schedule", k.id, "err", err)
		}
	}
	return nil
}

// dispatchRuns works on the first of a schedule's runs, and applies the rule for overlaps to the others.
func (s *Service) dispatchRuns(ctx context.Context, k key, runs []berth.ScheduleRunID, works *sync.WaitGroup) error {
	head, newest := s.current(k), runs[len(runs)-1]
	if head == newest {
		return nil
	}
	r, err := s.get(ctx, k)
	if err != nil {
		return err
	}
	if head == "" {
		if head, err = s.first(ctx, k, runs, r.Overlap == OverlapReplace); err != nil || head == "" {
			return err
		}
		s.begin(ctx, k, head, works)
	}
	runs = slices.DeleteFunc(runs, func(id berth.ScheduleRunID) bool { return id == head })
	if len(runs) == 0 {
		return nil
	}
	reason := "The run before it has not ended."
	switch r.Overlap {
	case OverlapQueue:
		runs, reason = runs[min(maxQueue, len(runs)):], fmt.Sprintf("%d runs wait already.", maxQueue)
	case OverlapReplace:
		reason = "A later run has replaced it."
		if head != newest {
			runs = runs[:len(runs)-1]
			s.supersede(k, head)
		}
	}
	now := s.opts.Clock.Now()
	for _, id := range runs {
		_, err := s.updateRun(ctx, k, id, func(r *runRecord) {
			if r.StartedAt == nil && r.EndedAt == nil {
				r.skip(reason, now)
			}
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}

// current returns the run of a schedule that this process works on, or "".
func (s *Service) current(k key) berth.ScheduleRunID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.working[k]; w != nil {
		return w.run
	}
	return ""
}

// first returns the run of a schedule that has started, or the first one, or with newest the last one. It returns "" if
// there is none.
func (s *Service) first(ctx context.Context, k key, runs []berth.ScheduleRunID, newest bool) (berth.ScheduleRunID,
	error) {
	if len(runs) == 1 {
		return runs[0], nil
	}
	var first berth.ScheduleRunID
	for _, id := range runs {
		r, err := s.getRun(ctx, k, id)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return "", err
		}
		if r.EndedAt == nil && (first == "" || newest || r.StartedAt != nil) {
			if first = id; r.StartedAt != nil {
				break
			}
		}
	}
	return first, nil
}

// begin works on a run in the background, unless the project has too many.
func (s *Service) begin(ctx context.Context, k key, id berth.ScheduleRunID, works *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for other := range s.working {
		if other.project == k.project {
			n++
		}
	}
	if n >= maxRunning {
		return // its turn comes when another run ends
	}
	waits, cancel := context.WithCancelCause(ctx)
	s.working[k] = &work{id, cancel}
	works.Go(func() {
		defer s.signal()
		defer func() {
			cancel(nil)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.working, k)
		}()
		if err := s.work(ctx, waits, k, id); err != nil && ctx.Err() == nil {
			s.opts.Log.Error("failed to run a schedule; will retry", "schedule", k.id, "run", id, "err", err)
			_ = s.sleep(ctx, retryAfter)
		}
	})
}

// supersede cancels the run that this process works on.
func (s *Service) supersede(k key, id berth.ScheduleRunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.working[k]; w != nil && w.run == id {
		w.cancel(errSuperseded)
	}
}

// sleep waits for d, or returns the cause of the end of ctx.
func (s *Service) sleep(ctx context.Context, d time.Duration) error {
	over := make(chan struct{})
	t := s.opts.Clock.AfterFunc(d, func() { close(over) })
	defer t.Stop()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
