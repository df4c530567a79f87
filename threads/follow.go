package threads

import (
	"context"
	"iter"

	"github.com/berth-run/berth"
)

// Follow yields the events of a run's last leg until its end. If thread is not nil, the
// first event is its creation. content is whether search results have their content. An
// error is yielded last.
func (s *Service) Follow(ctx context.Context, c berth.Caller, r *Record, thread *Thread, content bool) iter.Seq2[Event,
	error] {
	return func(yield func(Event, error) bool) {
		err := s.follow(ctx, c, r, thread, content, func(events ...Event) bool {
			for _, ev := range events {
				if !yield(ev, nil) {
					return false
				}
			}
			return true
		})
		if err != nil {
			yield(Event{}, err)
		}
	}
}

// follow calls emit with the events of Follow, until emit returns false.
func (s *Service) follow(ctx context.Context, c berth.Caller, r *Record, thread *Thread, content bool,
	emit func(...Event) bool) error {
	t, err := s.eventStream(ctx, c.Project, r)
	if err != nil {
		return err
	}
	t.bare = !content
	t.save = func(leg *berth.Response) error { return s.outputs.save(ctx, c, r, leg) }
	if thread != nil && !emit(Event{"thread.created", thread}) {
		return nil
	}
	if !emit(t.Start()...) {
		return nil
	}
	if !r.Ended { // an ended run was refused immediately and has no response
		for rec, err := range s.Journal.Follow(ctx, c.Project, r.last().Response, -1) {
			if err != nil {
				return err
			}
			ev, err := berth.DecodeEvent(rec.Data)
			if err != nil {
				return err
			}
			events, err := t.Apply(&ev)
			if err != nil {
				return err
			}
			if !emit(events...) {
				return nil
			}
		}
	}
	run, err := s.atEnd(ctx, c, r, &t.leg)
	if err != nil {
		return err
	}
	emit(t.End(run)...)
	return nil
}

// atEnd returns the run as it was at the end of r's last leg, even if another request has
// continued it since.
func (s *Service) atEnd(ctx context.Context, c berth.Caller, r *Record, leg *berth.Response) (*Run, error) {
	now, err := get[Record](ctx, s.Objects, c.Project, runKey(r.Run.ThreadID, r.Run.ID))
	if err != nil {
		return nil, err
	}
	if len(now.Legs) > len(r.Legs) {
		run := r.View(leg, s.Now())
		return &run, nil
	}
	run, _, err := s.current(ctx, c, now)
	return run, err
}

// eventStream returns an EventStream for a run's last leg.
func (s *Service) eventStream(ctx context.Context, p berth.ProjectID, r *Record) (*EventStream, error) {
	n := len(r.Legs) - 1
	if n == 0 {
		return newEventStream(r, nil, nil, s.Now), nil
	}
	leg, err := responseOf(ctx, s.Responses, p, r.Legs[n].Response)
	if err != nil {
		return nil, err
	}
	before, err := responseOf(ctx, s.Responses, p, r.Legs[n-1].Response)
	if err != nil || before == nil {
		return newEventStream(r, nil, &answer{}, s.Now), err
	}
	return newEventStream(r, before.Body, r.answer(n, leg), s.Now), nil
}
