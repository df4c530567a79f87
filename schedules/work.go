package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/store"
)

// Responses creates the responses of schedules, with the checks and limits of requests of clients.
type Responses interface {
	// Create creates a background response for a caller, with once as its Idempotency-Key.
	Create(ctx context.Context, c berth.Caller, body []byte, once string) Answer

	// Cancel cancels a response for a caller.
	Cancel(ctx context.Context, c berth.Caller, id berth.ResponseID) error

	// Await waits for the end of a response and returns it.
	Await(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (*berth.Response, error)

	// Place returns the body of a request whose tools run in the container with an id, or with a name.
	Place(ctx context.Context, p berth.ProjectID, body []byte, container string) ([]byte, error)
}

// An Answer is the answer to the request for a response.
type Answer struct {
	Status     int              // of HTTP
	Response   berth.ResponseID // of a success
	Message    string           // of a failure
	RetryAfter time.Duration    // before the next attempt; 0 means unknown
	Final      bool             // another attempt would fail as well
}

// maxStart bounds the attempts to create the response of a run.
const maxStart = 10 * time.Minute

// again reports whether another attempt may succeed.
func (a *Answer) again() bool {
	return !a.Final && (a.Status >= 500 || a.Status == 408 || a.Status == 409 || a.Status == 429)
}

// forbidden reports whether the key may not create the response.
func (a *Answer) forbidden() bool { return a.Status == 401 || a.Status == 403 }

// work takes a run to its end. The context waits ends when another run replaces this one, and also with ctx.
func (s *Service) work(ctx, waits context.Context, k key, id berth.ScheduleRunID) error {
	run, err := s.getRun(ctx, k, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && run.EndedAt != nil {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := s.get(ctx, k)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return nil // its runs are gone with it
	}
	if err != nil {
		return err
	}
	if run.StartedAt == nil {
		if run, err = s.start(ctx, k, r, run); err != nil || run.EndedAt != nil {
			return err
		}
	}
	c := berth.Caller{Project: k.project, Key: run.Key}
	if run.ResponseID == nil {
		if run, err = s.create(ctx, waits, k, r, run, c); err != nil || run.EndedAt != nil {
			return err
		}
	}
	final, err := s.await(ctx, waits, k, c, *run.ResponseID)
	if errors.Is(err, store.ErrNotFound) || berth.ErrorCode(err) == berth.CodeNotFound {
		return s.finish(ctx, k, id, Failed, "The response was deleted.", 0)
	}
	if err != nil {
		return err
	}
	cost, _ := final.Cost()
	return s.finish(ctx, k, id, RunStatus(final.Status), reasonOf(final), cost.Value)
}

// start counts a run and saves the body of its request, or ends it because the schedule may not start any. The body is
// saved because each attempt must send the same one.
func (s *Service) start(ctx context.Context, k key, r *record, run *runRecord) (*runRecord, error) {
	now := s.opts.Clock.Now()
	if r.Begun != run.ID {
		reason := r.exhausted(time.Unix(run.ScheduledAt, 0))
		if r.Status == Stopped {
			reason = r.StatusReason
		}
		if reason != "" {
			return s.updateRun(ctx, k, run.ID, func(run *runRecord) { run.skip(reason, now) })
		}
	}
	body := r.Request
	var failure error
	if r.Container != "" {
		body, failure = s.responses.Place(ctx, k.project, r.Request, r.Container)
		if _, ok := errors.AsType[*berth.Error](failure); failure != nil && !ok {
			return nil, fmt.Errorf("find container: %w", failure)
		}
	}
	at := now.Unix()
	if _, err := s.update(ctx, k, func(r *record) error {
		if r.Begun == run.ID {
			return nil
		}
		r.Begun, r.Runs = run.ID, r.Runs+1
		last := run.Run
		last.Status, last.StartedAt = InProgress, &at
		r.LastRun = &last
		if r.Status == Active && r.Limits.Runs != nil && r.Runs >= *r.Limits.Runs {
			r.end(r.exhausted(now))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	started, err := s.updateRun(ctx, k, run.ID, func(run *runRecord) {
		run.StartedAt, run.Key, run.Body, run.Status = &at, r.APIKeyID, body, InProgress
	})
	if err == nil && failure != nil {
		return started, s.finishInto(ctx, k, started, failure)
	}
	return started, err
}

// finishInto ends a run that failed before its response, and marks it as ended.
func (s *Service) finishInto(ctx context.Context, k key, run *runRecord, failure error) error {
	at := s.opts.Clock.Now().Unix()
	run.EndedAt = &at
	return s.finish(ctx, k, run.ID, Failed, messageOf(failure), 0)
}

// create creates the response of a run, or ends the run if that fails.
func (s *Service) create(ctx, waits context.Context, k key, r *record, run *runRecord, c berth.Caller) (*runRecord,
	error) {
	delays := backoff.Delays{First: time.Second, Max: time.Minute}
	until := time.Unix(*run.StartedAt, 0).Add(maxStart)
	for {
		answer := s.responses.Create(ctx, c, run.Body, string(run.ID))
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case answer.Response != "":
			if err := s.record(ctx, c, audit.ScheduleStarted, r, string(answer.Response)); err != nil {
				return nil, err
			}
			return s.updateRun(ctx, k, run.ID, func(run *runRecord) {
				run.ResponseID, run.Body = &answer.Response, nil
			})
		case !answer.again() || s.opts.Clock.Now().After(until):
			if answer.forbidden() {
				if err := s.stop(ctx, k, r, errors.New(answer.Message)); err != nil {
					return nil, err
				}
			}
			return run, s.finishInto(ctx, k, run, errors.New(answer.Message))
		}
		if s.sleep(waits, max(delays.Next(), min(answer.RetryAfter, time.Minute))) != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			at := s.opts.Clock.Now().Unix()
			run.EndedAt = &at
			return run, s.finish(ctx, k, run.ID, Cancelled, "A later run has replaced it.", 0)
		}
	}
}

// await waits for the end of a response, and cancels it if another run replaces this one.
func (s *Service) await(ctx, waits context.Context, k key, c berth.Caller, id berth.ResponseID) (*berth.Response,
	error) {
	final, err := s.responses.Await(waits, k.project, id)
	if waits.Err() == nil || ctx.Err() != nil {
		return final, err
	}
	if err := s.responses.Cancel(ctx, c, id); err != nil && berth.ErrorCode(err) != berth.CodeNotFound {
		// It may have ended. If it has not, the run ends with it.
		s.opts.Log.Warn("failed to cancel the response of a schedule", "schedule", k.id, "response", id, "err", err)
	}
	return s.responses.Await(ctx, k.project, id)
}

// finish ends a run and adds its cost to the schedule.
func (s *Service) finish(ctx context.Context, k key, id berth.ScheduleRunID, status RunStatus, reason string,
	cost berth.Amount) error {
	now := s.opts.Clock.Now()
	at := now.Unix()
	end := func(run *Run) { run.Status, run.Reason, run.Cost, run.EndedAt = status, reason, cost, &at }
	run, err := s.getRun(ctx, k, id)
	if err != nil {
		return err
	}
	if _, err := s.update(ctx, k, func(r *record) error {
		if r.Paid == id {
			return nil
		}
		r.Paid, r.Cost = id, r.Cost+cost
		last := run.Run
		end(&last)
		r.LastRun = &last
		if r.Status == Active && r.Limits.Cost != nil && r.Cost >= *r.Limits.Cost {
			r.end(r.exhausted(now))
		}
		return nil
	}); err != nil {
		return err
	}
	_, err = s.updateRun(ctx, k, id, func(run *runRecord) { end(&run.Run) })
	return err
}

// stop stops a schedule as whose key nothing can run, unless a client has changed it.
func (s *Service) stop(ctx context.Context, k key, r *record, cause error) error {
	stopped := false
	_, err := s.update(ctx, k, func(now *record) error {
		if stopped = now.APIKeyID == r.APIKeyID && (now.Status == Active || now.Status == Paused); stopped {
			now.Status, now.StatusReason, now.NextAt = Stopped, messageOf(cause), 0
		}
		return nil
	})
	if err != nil || !stopped {
		return err
	}
	s.opts.Log.Warn("stopped a schedule", "schedule", k.id, "project", k.project, "reason", messageOf(cause))
	return s.record(ctx, berth.Caller{Project: k.project, Key: r.APIKeyID}, audit.ScheduleStopped, r, messageOf(cause))
}

// reasonOf returns why a response did not complete, or "".
func reasonOf(r *berth.Response) string {
	switch {
	case r.Error != nil:
		return r.Error.Message
	case r.IncompleteDetails != nil:
		return r.IncompleteDetails.Reason
	}
	return ""
}

// messageOf returns the words of an error for clients.
func messageOf(err error) string {
	if e, ok := errors.AsType[*berth.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// Ready checks a request and returns it in the form in which it is stored: in the background, and without what only a
// client can use.
func Ready(request json.RawMessage) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(request, &fields); err != nil {
		return nil, fmt.Errorf("decode request: %w", err)
	}
	for name, refused := range map[string]string{"stream": "true", "store": "false", "background": "false"} {
		if string(fields[name]) == refused {
			return nil, berth.Invalid("request."+name,
				"Invalid 'request.%s': a schedule runs in the background and stores its responses.", name)
		}
	}
	delete(fields, "stream_options")
	fields["background"] = json.RawMessage("true")
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return body, nil
}
