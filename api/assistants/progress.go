package assistants

import (
	"context"
	"errors"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// latest returns the last run of a thread as it is now, nil if there is none.
func (s *Service) latest(ctx context.Context, c berth.Caller, thread string) (*Run, error) {
	records, _, err := list[Record](ctx, s.Objects, c.Project, kindRun, thread, store.Page{Limit: 1})
	if err != nil || len(records) == 0 {
		return nil, err
	}
	run, _, err := s.current(ctx, c, records[0])
	return run, err
}

// upToDate saves the messages of the thread's run so far. The thread must exist.
func (s *Service) upToDate(ctx context.Context, c berth.Caller, thread string) error {
	if _, err := s.Thread(ctx, c.Project, thread); err != nil {
		return err
	}
	_, err := s.latest(ctx, c, thread)
	return err
}

// current returns a run as it is now, and the response of its last leg unless it has
// ended. It does what a crash may have left undone: it makes the response of a leg that
// was noted, cancels what was to be cancelled, saves the messages that have been said
// and, once, how the run ended.
func (s *Service) current(ctx context.Context, c berth.Caller, r *Record) (*Run, *berth.Response, error) {
	if r.Ended {
		return &r.Run, nil, nil
	}
	leg, err := s.response(ctx, c.Project, r.last().Response)
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
		case !later(err): // else it stays queued
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
	}
	run := r.View(body, s.Now())
	if err := s.keep(ctx, c.Project, r, &run, body); err != nil {
		return nil, nil, err
	}
	return &run, body, nil
}

// response reads a leg's response, nil if there is none.
func (s *Service) response(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (*store.Response, error) {
	rec, err := s.Responses.GetResponse(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return rec, err
}

// legs reads all responses of a run, nil where there is none.
func (s *Service) legs(ctx context.Context, p berth.ProjectID, r *Record) ([]*store.Response, error) {
	legs := make([]*store.Response, len(r.Legs))
	for i, leg := range r.Legs {
		var err error
		if legs[i], err = s.response(ctx, p, leg.Response); err != nil {
			return nil, err
		}
	}
	return legs, nil
}

// end notes how a run has ended, once.
func (r *Record) end(run *Run) {
	if r.Ended {
		return
	}
	metadata := r.Run.Metadata // which may have been changed since
	r.Run, r.Ended = *run, true
	r.Run.Metadata = metadata
}

// keep saves the messages that the last leg has said since the last time, and how the
// run ended if it has.
func (s *Service) keep(ctx context.Context, p berth.ProjectID, r *Record, run *Run, leg *berth.Response) error {
	var said []*Message
	if leg != nil {
		said = messagesOf(run, leg)
	}
	for _, m := range said[min(r.Said, len(said)):] {
		o, err := objectOf(kindMessage, m.ThreadID, m.ID, m.CreatedAt, m)
		if err != nil {
			return err
		}
		if err := s.Objects.CreateObjects(ctx, p, o); err != nil && !errors.Is(err, store.ErrExists) {
			return absent(err, threadKey(m.ThreadID))
		}
	}
	if len(said) == r.Said && run.Status.Active() {
		return nil
	}
	kept, err := update(ctx, s.Objects, p, runKey(run.ThreadID, run.ID), func(kept *Record) error {
		if len(kept.Legs) != len(r.Legs) {
			return nil // it has gone on meanwhile
		}
		kept.Said = max(kept.Said, len(said))
		if !run.Status.Active() {
			kept.end(run)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if *r = *kept; r.Ended {
		*run = r.Run
	}
	return nil
}
