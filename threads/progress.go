package threads

import (
	"context"
	"errors"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// latest returns a thread's last run and its current state, or nil if there is no run.
func (s *Service) latest(ctx context.Context, c berth.Caller, thread string) (*Record, *Run, error) {
	records, _, err := list[Record](ctx, s.Objects, c.Project, kindRun, thread, store.Page{Limit: 1})
	if err != nil || len(records) == 0 {
		return nil, nil, err
	}
	run, _, err := s.current(ctx, c, records[0])
	return records[0], run, err
}

// container returns the last container of a run and those before it on the thread, or "".
func (s *Service) container(ctx context.Context, p berth.ProjectID, r *Record) (berth.ContainerID, error) {
	for _, leg := range slices.Backward(r.Legs) {
		rec, err := responseOf(ctx, s.Responses, p, leg.Response)
		if err != nil {
			return "", err
		}
		if rec != nil && rec.Container != "" {
			return rec.Container, nil
		}
	}
	return r.Container, nil
}

// upToDate saves the messages of the thread's last run so far. It returns an error if the
// thread does not exist.
func (s *Service) upToDate(ctx context.Context, c berth.Caller, thread string) error {
	if _, err := s.Thread(ctx, c.Project, thread); err != nil {
		return err
	}
	_, _, err := s.latest(ctx, c, thread)
	return err
}

// current returns the current state of a run and, unless it has ended, the response of its
// last leg. It also completes work that a crash may have interrupted: it creates the
// response of a recorded leg, cancels a response whose run was cancelled, and saves the new
// messages and the end of the run.
func (s *Service) current(ctx context.Context, c berth.Caller, r *Record) (*Run, *berth.Response, error) {
	if r.Ended {
		return &r.Run, nil, nil
	}
	leg, err := responseOf(ctx, s.Responses, c.Project, r.last().Response)
	if err != nil {
		return nil, nil, err
	}
	if leg == nil && !r.last().Started && r.CancelAt == 0 {
		started, err := s.start(ctx, c, r)
		if refused(err) {
			started, err = s.fail(ctx, c, r, err)
		}
		switch {
		case err == nil:
			*r = *started
			return s.current(ctx, c, r)
		case !later(err): // otherwise the run stays queued
			return nil, nil, err
		}
	}
	if r.CancelAt != 0 && leg != nil && !leg.Body.Status.Final() {
		if leg.Body, err = s.Engine.Cancel(ctx, c, leg.Body.ID); err != nil {
			return nil, nil, err
		}
	}
	var body *berth.Response
	if leg != nil {
		body = leg.Body
		if err := s.outputs.save(ctx, c, r, body); err != nil {
			return nil, nil, err
		}
	}
	run := r.View(body, s.Now())
	if err := s.save(ctx, c.Project, r, &run, body); err != nil {
		return nil, nil, err
	}
	return &run, body, nil
}

// responseOf returns a leg's response, or nil if it does not exist.
func responseOf(ctx context.Context, responses store.Responses, p berth.ProjectID,
	id berth.ResponseID) (*store.Response, error) {
	rec, err := responses.GetResponse(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return rec, err
}

// legs returns the responses of a run's legs. Missing ones are nil.
func (s *Service) legs(ctx context.Context, p berth.ProjectID, r *Record) ([]*store.Response, error) {
	legs := make([]*store.Response, len(r.Legs))
	for i, leg := range r.Legs {
		var err error
		if legs[i], err = responseOf(ctx, s.Responses, p, leg.Response); err != nil {
			return nil, err
		}
	}
	return legs, nil
}

// end records the end of a run, unless one is recorded already.
func (r *Record) end(run *Run) {
	if r.Ended {
		return
	}
	metadata := r.Run.Metadata // may be newer than that of run
	r.Run, r.Ended = *run, true
	r.Run.Metadata = metadata
}

// save saves the new messages of the last leg and, if the run has ended, its end.
func (s *Service) save(ctx context.Context, p berth.ProjectID, r *Record, run *Run, leg *berth.Response) error {
	var messages []*Message
	if leg != nil {
		messages = r.messagesOf(run, leg)
	}
	for _, m := range messages[min(r.Saved, len(messages)):] {
		o, err := objectOf(kindMessage, m.ThreadID, m.ID, m.CreatedAt, m)
		if err != nil {
			return err
		}
		if err := s.Objects.CreateObjects(ctx, p, o); err != nil && !errors.Is(err, store.ErrExists) {
			return absent(err, threadKey(m.ThreadID))
		}
	}
	if len(messages) == r.Saved && run.Status.Active() {
		return nil
	}
	saved, err := update(ctx, s.Objects, p, runKey(run.ThreadID, run.ID), func(saved *Record) error {
		if len(saved.Legs) != len(r.Legs) {
			return nil // another request has continued the run
		}
		saved.Saved = max(saved.Saved, len(messages))
		if !run.Status.Active() {
			saved.end(run)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if *r = *saved; r.Ended {
		*run = r.Run
	}
	return nil
}
