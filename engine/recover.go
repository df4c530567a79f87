package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/store"
)

// Recover resumes the runs that a former life of this server left, and those whose
// lease has lapsed, now and from time to time until Close (takeover.go). Containers
// must have been adopted before.
//
// Finished items are facts. What was half said is closed as incomplete and the
// turn asked again. A hosted call without output is asked of the container by
// its id, which answers with what it has done already.
func (e *Engine) Recover(ctx context.Context) error {
	if err := e.Runs.ReleaseOwner(ctx, e.Owner); err != nil {
		e.Log.Error("failed to release the leases of the last start; its responses are resumed when they have lapsed", "err", err)
	}
	t := newTakeover(e)
	err := t.sweep(ctx)
	e.sweeping.Do(func() { e.wg.Go(t.run) })
	return err
}

// resume starts the run of a response here, unless it runs, has ended, or is another
// server's. If stopped is not nil the run only ends, as cancelled for that cause.
func (e *Engine) resume(ctx context.Context, ref store.RunRef, stopped error) error {
	release, err := e.claim(ctx, ref.Response)
	if err != nil {
		return err
	}
	defer release()
	if e.busy(ref.Response) {
		return nil
	}
	rec, err := e.Responses.GetResponse(ctx, ref.Project, ref.Response)
	if err != nil {
		return fmt.Errorf("read response: %w", err)
	}
	if !rec.Body.Store {
		// Its client is gone, and no other may read it.
		return e.Responses.DeleteResponse(ctx, ref.Project, ref.Response)
	}
	r := &run{engine: e, record: rec, lifetime: lifetime{booked: func(int) {}, stopped: stopped}}
	told, err := r.acquire(ctx)
	if errors.Is(err, store.ErrConflict) {
		return nil // it has ended, or another server was quicker
	}
	if err != nil {
		return err
	}
	rec.Body = new(r.writer.Body())
	err = r.bind(ctx)
	if err == nil {
		err = r.rewind(ctx, told)
	}
	if err != nil {
		defer r.writer.Close()
		if r.writer.Err() != nil || ctx.Err() != nil || errors.As(err, new(unread)) {
			r.release(context.WithoutCancel(ctx))
			return err
		}
		status, failure := berth.StatusFailed, err
		if stopped != nil {
			status, failure = berth.StatusCancelled, nil
		}
		r.log().Error("failed to resume a response", "err", err)
		return r.end(ctx, status, "", failure)
	}
	r.log().Info("resumed a response", "items", len(rec.Body.Output), "calls", len(r.pending))
	r.booked = e.Quota.Resume(ref.Project)
	e.start(r)
	return nil
}

// acquire takes the run's lease and opens its journal, in the place of the one that
// was open. It returns the events stored so far.
func (r *run) acquire(ctx context.Context) ([]berth.Event, error) {
	e, p, id := r.engine, r.record.Project, r.id()
	if err := e.Runs.AcquireRun(ctx, p, id, e.lease(), time.Now()); err != nil {
		return nil, fmt.Errorf("acquire lease: %w", err)
	}
	rec, err := e.Responses.GetResponse(ctx, p, id)
	if err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	w, told, err := e.Journal.Resume(ctx, rec, e.Owner)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	if r.writer != nil {
		r.writer.Close()
	}
	r.writer = w
	return told, nil
}

// An unread error says that the store could not be read, which is no fault of the
// response.
type unread struct{ error }

func (u unread) Unwrap() error { return u.error }

// bind finds what a stored run needs to go on: its provider, tools and history.
func (r *run) bind(ctx context.Context) error {
	e, rec := r.engine, r.record
	var err error
	if r.provider, r.upstream, err = e.Models.Route(rec.Body.Model); err != nil {
		return err
	}
	r.window = e.transcripts.Window(e.Models.Window(rec.Body.Model))
	chain, err := e.transcripts.Stored(ctx, rec)
	if _, ok := errors.AsType[*berth.Error](err); err != nil && !ok {
		return unread{fmt.Errorf("read chain: %w", err)}
	}
	if err != nil {
		return err
	}
	r.transcript = e.transcripts.Restore(rec, chain)
	if r.tools, err = e.bind(berth.Caller{Project: rec.Project, Key: rec.Key, RequestID: rec.RequestID}, rec.Body, r.transcript.Items()); err != nil {
		return err
	}
	if r.origin = transcript.OriginOf(rec.Body); r.origin.Upstream == "" {
		r.origin = chain.Origin
	}
	return nil
}

// rewind brings a run to its last turn boundary. told are the events of the response.
func (r *run) rewind(ctx context.Context, told []berth.Event) error {
	body := r.writer.Body()
	r.usage, r.summed, r.heard = berth.Usage{}, 0, 0
	if body.Usage != nil {
		r.usage = *body.Usage
	}
	r.said = saidBefore(told)
	r.hostedCalls, r.refused, r.pending, r.asides, r.speech = 0, 0, nil, nil, nil
	resumed, err := r.restoreCalls(body.Output, told)
	if err != nil {
		return err
	}
	open := newDrafts(r.engine.Tools)
	open.note(told)
	events := abandon(body, open)
	events = slices.DeleteFunc(events, func(ev berth.Event) bool { return resumed[*ev.OutputIndex] })
	if len(events) == 0 {
		return nil
	}
	return r.writer.Append(ctx, events...)
}

// restoreCalls takes up the hosted calls that have no finished output. It
// returns the places of their open outputs.
func (r *run) restoreCalls(output []berth.Item, told []berth.Event) (open map[int]bool, err error) {
	open = map[int]bool{}
	answers := transcript.Outputs(r.engine.Tools, output)
	for i, it := range output {
		t := r.hostedTool(it)
		if t == nil || it.Status() == berth.StatusInProgress {
			continue
		}
		n, answered := answers[i]
		var out berth.Item
		if !answered {
			n = -1
		} else {
			if output[n].Status() != berth.StatusInProgress {
				r.countCall(it)
				continue
			}
			out, open[n] = output[n], true
		}
		call, err := t.ResumeCall(it, out, about(told, n))
		if err != nil {
			return nil, fmt.Errorf("resume call %s: %w", it.ID(), err)
		}
		if call == nil {
			continue
		}
		r.countCall(it)
		r.pending = append(r.pending, call)
	}
	return open, nil
}

// countCall counts a hosted call that the model made.
func (r *run) countCall(it berth.Item) {
	if checkRound(r.engine.Tools, it) == 0 {
		r.hostedCalls++
	}
}

// about returns the events about the item at one place of the output.
func about(told []berth.Event, index int) []berth.Event {
	var events []berth.Event
	for _, ev := range told {
		if ev.OutputIndex != nil && *ev.OutputIndex == index {
			events = append(events, ev)
		}
	}
	return events
}
