package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/tool"
)

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

// rewind returns a run to its last turn boundary. stored are all events of the response.
func (r *run) rewind(ctx context.Context, stored []berth.Event) error {
	body := r.writer.Body()
	r.resourceUse, r.usage = resourceUse{written: writtenBefore(stored)}, berth.Usage{}
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
		t := r.hostedTool(r.engine.Tools, it)
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
				r.countCall(r.engine.Tools, it)
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
		r.countCall(r.engine.Tools, it)
		r.pending = append(r.pending, pendingCall{call, i, tool.CallerOf(it)})
	}
	return open, nil
}

// countCall counts a hosted call for max_tool_calls, unless it is a check of the engine.
func (u *resourceUse) countCall(kinds *tool.Registry, it berth.Item) {
	if checkRound(kinds, it) == 0 {
		u.hostedCalls++
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
