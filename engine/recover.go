package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// Recover takes up the runs that a former life of this server left, and those of
// other servers whose lease has ended. Containers must have been adopted before.
//
// Finished items are facts. What was half said is closed as incomplete and the
// turn asked again. A hosted call without output is asked of the container by
// its id, which answers with what it has done already.
func (e *Engine) Recover(ctx context.Context) error {
	if err := e.Runs.ReleaseOwner(ctx, e.Owner); err != nil {
		return err
	}
	orphans, err := e.Runs.OrphanedRuns(ctx, time.Now())
	if err != nil {
		return err
	}
	for _, ref := range orphans {
		if err := e.resume(ctx, ref); err != nil {
			e.Log.Error("a response was not resumed", "response", ref.Response, "err", err)
		}
	}
	return nil
}

func (e *Engine) resume(ctx context.Context, ref store.RunRef) error {
	rec, err := e.Responses.GetResponse(ctx, ref.Project, ref.Response)
	if err != nil {
		return err
	}
	if !rec.Body.Store {
		// Its client is gone, and nobody else may read it.
		return e.Responses.DeleteResponse(ctx, ref.Project, ref.Response)
	}
	err = e.Runs.AcquireRun(ctx, ref.Project, ref.Response, e.lease(), time.Now())
	if errors.Is(err, store.ErrConflict) {
		return nil // another server was quicker
	}
	if err != nil {
		return err
	}
	r := &run{engine: e, record: rec, booked: func(int) {}}
	var told []berth.Event
	if r.writer, told, err = e.Journal.Resume(ctx, rec, e.Owner); err != nil {
		return err
	}
	if err := r.restore(ctx, told); err != nil {
		r.log().Error("the response cannot go on", "err", err)
		defer r.writer.Close()
		return r.end(ctx, berth.StatusFailed, "", err)
	}
	r.log().Info("the response is resumed", "items", len(rec.Body.Output), "calls", len(r.pending))
	r.booked = e.Quota.Resume(ref.Project)
	e.start(r)
	return nil
}

// restore brings a run to its last turn boundary.
func (r *run) restore(ctx context.Context, told []berth.Event) error {
	e, rec := r.engine, r.record
	var err error
	if r.provider, r.upstream, err = e.Models.Route(rec.Body.Model); err != nil {
		return err
	}
	r.window = e.window(rec.Body.Model)
	chain, err := sourceOfStored(rec).read(ctx, e, rec.Project)
	if err != nil {
		return err
	}
	r.chain, r.history = chain, slices.Concat(chain.items, rec.Input)
	if r.tools, err = e.bind(berth.Caller{Project: rec.Project, Key: rec.Key, RequestID: rec.RequestID}, rec.Body, r.history); err != nil {
		return err
	}
	if r.origin = originOf(rec.Body); r.origin.Upstream == "" {
		r.origin = chain.origin
	}
	if rec.Body.Usage != nil {
		r.usage = *rec.Body.Usage
	}
	resumed, err := r.restoreCalls(told)
	if err != nil {
		return err
	}
	events := abandon(*rec.Body, textsOf(told))
	events = slices.DeleteFunc(events, func(ev berth.Event) bool { return resumed[*ev.OutputIndex] })
	if len(events) == 0 {
		return nil
	}
	return r.writer.Append(ctx, events...)
}

// restoreCalls takes up the hosted calls that have no finished output. It
// returns the places of their open outputs.
func (r *run) restoreCalls(told []berth.Event) (open map[int]bool, err error) {
	output := r.record.Body.Output
	open = map[int]bool{}
	for _, it := range output {
		t := r.hostedTool(it)
		if t == nil || it.Status() == berth.StatusInProgress {
			continue
		}
		if checkRound(it) == 0 {
			r.hostedCalls++
		}
		n := slices.IndexFunc(output, func(o berth.Item) bool { return tool.IsOutput(o) && o.CallID() == it.CallID() })
		var out berth.Item
		if n >= 0 {
			if output[n].Status() != berth.StatusInProgress {
				continue
			}
			out, open[n] = output[n], true
		}
		call, err := t.ResumeCall(it, out, about(told, n))
		if err != nil {
			return nil, fmt.Errorf("call %s: %w", it.ID(), err)
		}
		r.pending = append(r.pending, call)
	}
	return open, nil
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

// textsOf returns the text told of each item, by its place in the output.
func textsOf(told []berth.Event) map[int]string {
	built := map[int]*strings.Builder{}
	for _, ev := range told {
		var text string
		if ev.Type != berth.EventOutputTextDelta || json.Unmarshal(ev.Delta, &text) != nil {
			continue
		}
		if built[*ev.OutputIndex] == nil {
			built[*ev.OutputIndex] = &strings.Builder{}
		}
		built[*ev.OutputIndex].WriteString(text)
	}
	texts := map[int]string{}
	for i, b := range built {
		texts[i] = b.String()
	}
	return texts
}
