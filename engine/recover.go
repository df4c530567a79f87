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
	"github.com/berth-run/berth/tool"
)

// Recover resumes the runs that an earlier process of this server left unfinished, and
// those whose lease has lapsed. It repeats the latter in the background until Close
// (recovery.go). Containers must have been adopted before.
//
// A resumed run continues after its last turn boundary. Finished items stay. Open items
// are closed as incomplete, and the turn is requested again. A hosted call without output
// is sent to the container again under the same id; the container returns what it has done
// already.
func (e *Engine) Recover(ctx context.Context) error {
	if err := e.Runs.ReleaseOwner(ctx, e.Owner); err != nil {
		e.Log.Error("failed to release leases of the last start; their responses are resumed when the leases lapse", "err", err)
	}
	t := newRecovery(e)
	err := t.sweep(ctx)
	e.sweeping.Do(func() { e.wg.Go(t.run) })
	return err
}

// resume starts the run of a response in this process. It does nothing if the response
// runs here already, has ended, or is held by another server. If stopped is not nil, the
// run only ends the response as cancelled for that cause.
func (e *Engine) resume(ctx context.Context, ref store.RunRef, stopped error) error {
	release, err := e.live.claim(ctx, ref.Response)
	if err != nil {
		return err
	}
	defer release()
	if e.live.busy(ref.Response) {
		return nil
	}
	rec, err := e.Responses.GetResponse(ctx, ref.Project, ref.Response)
	if err != nil {
		return fmt.Errorf("read response: %w", err)
	}
	if !rec.Body.Store {
		// Its client has disconnected, and no other client may read it.
		if err := e.Responses.DeleteResponse(ctx, ref.Project, ref.Response); err != nil {
			return fmt.Errorf("delete response: %w", err)
		}
		return nil
	}
	if stopped == nil {
		if err := e.mayResume(ctx, rec); err != nil {
			return err
		}
	}
	r := &run{engine: e, record: rec, lifetime: lifetime{booked: func(int) {}, stopped: stopped}}
	events, err := r.acquire(ctx)
	if errors.Is(err, store.ErrConflict) {
		return nil // it has ended, or another server holds it
	}
	if err != nil {
		return err
	}
	rec.Body = new(r.writer.Body())
	err = r.bind(ctx)
	if err == nil {
		err = r.rewind(ctx, events)
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
		r.log().Error("failed to resume response", "err", err)
		return r.end(ctx, status, "", failure)
	}
	r.log().Info("resumed response", "items", len(rec.Body.Output), "calls", len(r.pending))
	r.booked = e.Quota.Resume(ref.Project)
	r.trace(context.Background()) // the request that created it has ended
	e.start(r)
	return nil
}

// acquire acquires the run's lease and opens its journal, in place of the writer that the
// run had before. It returns all stored events of the response.
func (r *run) acquire(ctx context.Context) ([]berth.Event, error) {
	e, p, id := r.engine, r.record.Project, r.id()
	now := time.Now()
	if err := e.Runs.AcquireRun(ctx, p, id, e.lease(), now); err != nil {
		return nil, fmt.Errorf("acquire lease: %w", err)
	}
	r.leased.Store(&now)
	rec, err := e.Responses.GetResponse(ctx, p, id)
	if err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	w, events, err := e.Journal.Resume(ctx, rec, e.Owner)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	if r.writer != nil {
		r.writer.Close()
	}
	r.writer = w
	return events, nil
}

// An unread error means that the store could not be read. It does not fail the response.
type unread struct{ error }

func (u unread) Unwrap() error { return u.error }

// bind restores the parts that a stored run needs: its provider, tools and transcript.
func (r *run) bind(ctx context.Context) error {
	e, rec := r.engine, r.record
	var err error
	if err = r.route(e.Models, rec.Body.Model); err != nil {
		return err
	}
	r.compactor = newCompactor(r, e.transcripts.Window(e.Models.Window(rec.Body.Model)))
	chain, err := e.transcripts.Stored(ctx, rec)
	if _, ok := errors.AsType[*berth.Error](err); err != nil && !ok {
		return unread{fmt.Errorf("read chain: %w", err)}
	}
	if err != nil {
		return err
	}
	r.transcript = e.transcripts.Restore(rec, chain)
	bound := r.toolContext(berth.Caller{Project: rec.Project, Key: rec.Key, RequestID: rec.RequestID}, rec.Request.Include)
	if err := r.outlook.bind(e.Tools, bound, rec.Body, slices.Concat(r.transcript.Items(), rec.Body.Output)); err != nil {
		return err
	}
	r.guard = newGuard(rec, r.tools, e)
	if err := r.reserveContainer(ctx); err != nil {
		return err
	}
	if r.origin = transcript.OriginOf(rec.Body); r.origin.Upstream == "" {
		r.origin = chain.Origin
	}
	return nil
}

// rewind returns a run to its last turn boundary. stored are all events of the response.
func (r *run) rewind(ctx context.Context, stored []berth.Event) error {
	body := r.writer.Body()
	r.used = used{written: writtenBefore(stored)}
	r.compactor.counted = 0
	if body.Usage != nil {
		r.usage = *body.Usage
	}
	r.programs.stop()
	r.pending, r.refusals, r.refusedTurns, r.turnWriter = nil, nil, 0, nil
	resumed, err := r.restoreCalls(body.Output, stored)
	if err != nil {
		return err
	}
	open := newDrafts(r.engine.Tools)
	open.add(stored)
	events := abandon(body, open, resumed)
	if len(events) == 0 {
		return nil
	}
	return r.writer.Append(ctx, events...)
}

// restoreCalls adds the hosted calls without a finished output to the pending calls. It
// returns the places of the open items that hold their outputs.
func (r *run) restoreCalls(output []berth.Item, stored []berth.Event) (open map[int]bool, err error) {
	open = map[int]bool{}
	outputs := transcript.Outputs(r.engine.Tools, output)
	for i, it := range output {
		t := r.hostedTool(it)
		within := r.engine.Tools.HoldsOutput(it)
		if t == nil || it.Status() == berth.StatusInProgress && !within {
			continue
		}
		n, hasOutput := outputs[i]
		if within && !hasOutput && it.Status() != berth.StatusInProgress {
			continue // the model did not finish it
		}
		var out berth.Item
		switch {
		case within && !hasOutput:
			n = i
		case !hasOutput:
			n = -1
		default:
			if output[n].Status() != berth.StatusInProgress {
				r.countCall(it)
				continue
			}
			out, open[n] = output[n], true
		}
		call, err := t.ResumeCall(it, out, eventsAt(n, stored))
		if err != nil {
			return nil, fmt.Errorf("resume call %s: %w", it.ID(), err)
		}
		if call == nil {
			continue
		}
		if within {
			open[i] = true
		}
		r.countCall(it)
		r.pending = append(r.pending, pendingCall{call, i, tool.CallerOf(it)})
	}
	return open, nil
}

// countCall counts a hosted call for max_tool_calls, unless it is a check of the engine.
func (r *run) countCall(it berth.Item) {
	if checkRound(r.engine.Tools, it) == 0 {
		r.hostedCalls++
	}
}

// eventsAt returns the events about the item at one place of the output.
func eventsAt(index int, events []berth.Event) []berth.Event {
	var out []berth.Event
	for _, ev := range events {
		if ev.OutputIndex != nil && *ev.OutputIndex == index {
			out = append(out, ev)
		}
	}
	return out
}
