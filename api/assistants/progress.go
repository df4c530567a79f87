package assistants

import (
	"context"
	"encoding/json"
	"errors"
	"iter"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/store"
)

// latest returns the last run of a thread as it is now, nil if there is none.
func (s *Service) latest(ctx context.Context, c berth.Caller, thread string) (*Run, error) {
	records, _, err := list[Record](ctx, s, c.Project, kindRun, thread, store.Page{Limit: 1})
	if err != nil || len(records) == 0 {
		return nil, err
	}
	run, _, err := s.current(ctx, c, records[0])
	return run, err
}

// upToDate saves what the thread's run has said so far. The thread must be there.
func (s *Service) upToDate(ctx context.Context, c berth.Caller, thread string) error {
	if _, err := s.Thread(ctx, c.Project, thread); err != nil {
		return err
	}
	_, err := s.latest(ctx, c, thread)
	return err
}

// current returns a run as it is now, and its responses if it has not ended. It does what a crash may
// have left undone: it makes the response of a leg that was noted, cancels what was to
// be cancelled, saves the messages that have been said and, once, how the run ended.
func (s *Service) current(ctx context.Context, c berth.Caller, r *Record) (*Run, []*berth.Response, error) {
	if r.Ended {
		return &r.Run, nil, nil
	}
	legs, err := s.legs(ctx, c.Project, r)
	if err != nil {
		return nil, nil, err
	}
	if n := len(r.Legs) - 1; legs[n] == nil && !r.Legs[n].Started && r.CancelAt == 0 {
		started, err := s.start(ctx, c, r, usageOf(legs))
		if err != nil && refused(err) {
			started, err = s.fail(ctx, c, r, err)
		}
		if err != nil {
			return nil, nil, err
		}
		*r = *started
		return s.current(ctx, c, r)
	}
	if n := len(r.Legs) - 1; r.CancelAt != 0 && legs[n] != nil && !legs[n].Status.Final() {
		if legs[n], err = s.Engine.Cancel(ctx, c, r.Legs[n].Response); err != nil {
			return nil, nil, err
		}
	}
	run := r.View(legs, s.Now())
	if err := s.keep(ctx, c.Project, r, &run, legs); err != nil {
		return nil, nil, err
	}
	return &run, legs, nil
}

// legs reads the responses of a run, nil where there is none.
func (s *Service) legs(ctx context.Context, p berth.ProjectID, r *Record) ([]*berth.Response, error) {
	legs := make([]*berth.Response, len(r.Legs))
	for i, leg := range r.Legs {
		rec, err := s.Responses.GetResponse(ctx, p, leg.Response)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		legs[i] = rec.Body
	}
	return legs, nil
}

func usageOf(legs []*berth.Response) Usage {
	var u Usage
	for _, leg := range legs {
		if leg != nil {
			u.add(leg.Usage)
		}
	}
	return u
}

// start makes the response of the last leg, unless that has been done, and notes it.
func (s *Service) start(ctx context.Context, c berth.Caller, r *Record, used Usage) (*Record, error) {
	var messages []*Message
	if len(r.Legs) == 1 {
		var err error
		if messages, err = s.context(ctx, c.Project, r); err != nil {
			return nil, err
		}
	}
	n := len(r.Legs) - 1
	req, err := r.Request(messages, used)
	if err != nil {
		return nil, err
	}
	_, err = s.Engine.Create(ctx, c, req, engine.As(r.Legs[n].Response))
	if err != nil && !errors.Is(err, store.ErrExists) {
		return nil, err
	}
	id := r.Legs[n].Response
	r, err = update(ctx, s, c.Project, runKey(r.Run.ThreadID, r.Run.ID), func(r *Record) error {
		r.Legs[n].Started = true
		return nil
	})
	switch { // what happened while it was being started
	case berth.ErrorCode(err) == berth.CodeNotFound:
		_ = s.Engine.Delete(ctx, c, id) // its thread was deleted
	case err == nil && r.CancelAt != 0:
		_, err = s.Engine.Cancel(ctx, c, id)
	}
	return r, err
}

// refused reports whether the engine will not do what was asked, now or later.
func refused(err error) bool {
	switch berth.ErrorCode(err) {
	case berth.CodeInternal, berth.CodeUnavailable, berth.CodeUpstream, berth.CodeRateLimited:
		return false
	}
	return true
}

// fail ends a run whose last leg was refused.
func (s *Service) fail(ctx context.Context, c berth.Caller, r *Record, cause error) (*Record, error) {
	legs, err := s.legs(ctx, c.Project, r)
	if err != nil {
		return nil, err
	}
	e, _ := errors.AsType[*berth.Error](cause)
	run := r.View(legs, s.Now())
	usage := usageOf(legs)
	run.fail(s.Now().Unix(), "invalid_prompt", e.Message)
	run.Usage = &usage
	return update(ctx, s, c.Project, runKey(r.Run.ThreadID, r.Run.ID), func(r *Record) error {
		r.end(&run)
		return nil
	})
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

// context returns the messages that a run reads, the oldest first.
func (s *Service) context(ctx context.Context, p berth.ProjectID, r *Record) ([]*Message, error) {
	thread := r.Run.ThreadID
	if n := r.Run.TruncationStrategy.LastMessages; r.Run.TruncationStrategy.Type == "last_messages" && n != nil {
		return s.lastMessages(ctx, p, thread, *n)
	}
	var all []*Message
	page := store.Page{Limit: 1000, Ascending: true}
	for {
		some, more, err := list[Message](ctx, s, p, kindMessage, thread, page)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if !more {
			return all, nil
		}
		page.After = some[len(some)-1].ID
	}
}

// keep saves the messages that a run has said since the last time, and how it ended
// if it has.
func (s *Service) keep(ctx context.Context, p berth.ProjectID, r *Record, run *Run, legs []*berth.Response) error {
	said := r.Messages(run, legs)
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
	kept, err := update(ctx, s, p, runKey(run.ThreadID, run.ID), func(kept *Record) error {
		kept.Said = max(kept.Said, len(said))
		if !run.Status.Active() && len(kept.Legs) == len(r.Legs) {
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

// Follow yields the events of a run's last leg, to its halt. thread is told first if
// it is not nil. An error ends it.
func (s *Service) Follow(ctx context.Context, c berth.Caller, r *Record, thread *Thread) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := s.follow(ctx, c, r, thread, func(events ...Event) bool {
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

func (s *Service) follow(ctx context.Context, c berth.Caller, r *Record, thread *Thread, tell func(...Event) bool) error {
	n := len(r.Legs) - 1
	legs, err := s.legs(ctx, c.Project, r)
	if err != nil {
		return err
	}
	if thread != nil && !tell(Event{"thread.created", thread}) {
		return nil
	}
	t := NewTeller(r, legs[:n], s.Now)
	if !tell(t.Begin()...) {
		return nil
	}
	if !r.Ended { // it was refused at once otherwise
		for rec, err := range s.Journal.Follow(ctx, c.Project, r.Legs[n].Response, -1) {
			if err != nil {
				return err
			}
			var ev berth.Event
			if err := json.Unmarshal(rec.Data, &ev); err != nil {
				return err
			}
			events, err := t.Tell(&ev)
			if err != nil {
				return err
			}
			if !tell(events...) {
				return nil
			}
		}
	}
	if r, err = get[Record](ctx, s, c.Project, runKey(r.Run.ThreadID, r.Run.ID)); err != nil {
		return err
	}
	run, _, err := s.current(ctx, c, r)
	if err != nil {
		return err
	}
	tell(t.End(run)...)
	return nil
}
