package engine

import (
	"context"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// write queues the events of one delta: those that arrive while a write runs are stored
// together by the next one.
func (w *turnWriter) write(ctx context.Context, delta model.Delta) error {
	if !w.begun {
		w.begun, w.first = true, time.Now()
	}
	if text, ok := delta.(model.Text); !ok || w.message != nil && w.message.phase != text.Phase {
		w.cite(ctx)
	}
	return w.run.writer.Queue(ctx, func(body berth.Response) []berth.Event {
		w.next, w.output = len(body.Output), body.Output
		events := w.events(delta)
		w.drafts.add(events)
		return events
	})
}

// events returns the events of one delta.
func (w *turnWriter) events(delta model.Delta) []berth.Event {
	switch d := delta.(type) {
	case model.Text:
		return w.writeText(w.closeBefore(w.message != nil && w.message.phase == d.Phase), "output_text", d)
	case model.Refusal:
		return w.writeText(w.closeBefore(w.message != nil), "refusal", model.Text{Text: d.Text})
	case model.Thought:
		return w.writeThought(w.closeBefore(w.thought != nil && w.thought.summary == d.Summary), d)
	case model.Call:
		return w.writeCall(d)
	case model.Native:
		return w.writeNative(d)
	case model.Item:
		w.keepWhole(d)
	}
	return nil
}

// finish closes the open items and, unless hosted calls are pending, ends the response in
// the same Update. It reports whether the response is over.
func (w *turnWriter) finish(ctx context.Context, f model.Finish) (over bool, err error) {
	r, concluding := w.run, false
	r.usage.Add(f.Usage)
	r.origin = f.Origin
	r.tier, r.moderation, r.stopText = f.ServiceTier, f.Moderation, ""
	if slices.Contains(r.record.Request.Sampling.Stop, f.Stop) {
		r.stopText = f.Stop
	}
	r.compactor.counted = f.Usage.InputTokens + f.Usage.OutputTokens - f.Usage.OutputTokenDetails.ReasoningTokens
	r.writer.SetUsage(r.usage, turnsOf(f)...)
	r.writer.AddTiming(w.timing(f, nil))
	w.cite(ctx)
	err = r.writer.Update(ctx, func(body berth.Response) []berth.Event {
		w.next = len(body.Output)
		cut := f.Reason == model.FinishLength || f.Reason == model.FinishContentFilter
		events := w.closeText(cut)
		if !cut {
			events = append(events, w.closeCalls(func(*openCall) bool { return true })...)
			events = append(events, w.closeNative()...)
		}
		w.drafts.add(events)
		body = fold(body, events)
		switch {
		case cut:
			over = true
			open := abandon(body, w.drafts, nil)
			body = fold(body, open)
			reason := map[model.FinishReason]string{model.FinishLength: "max_output_tokens",
				model.FinishContentFilter: "content_filter"}[f.Reason]
			return append(append(events, open...), r.final(body, berth.StatusIncomplete, reason))
		case len(r.pending) > 0, w.ignored && !r.withheld(), w.refusal != "":
			return events
		}
		if !r.waitsForClient(body) {
			if opened, call := r.guard.check(body.Output); call != nil {
				r.pending = append(r.pending, pendingCall{Call: call, index: len(body.Output)})
				return append(events, opened...)
			}
		}
		over = true
		if concluding = len(r.record.Request.ContextManagement) > 0 && !r.waitsForClient(body); concluding {
			return events
		}
		return append(events, r.final(body, berth.StatusCompleted, ""))
	})
	if r.refusedTurns++; w.refusal == "" || len(r.pending) > 0 {
		r.refusedTurns = 0
	}
	if err == nil && r.refusedTurns == maxRefusedTurns {
		err = berth.Errorf(berth.CodeUpstream,
			"The model made only invalid calls in %d consecutive turns. The last error was: %s", maxRefusedTurns,
			w.refusal)
	}
	if concluding && err == nil {
		err = r.conclude(ctx)
	}
	return over, err
}

// abandon closes the open items as incomplete, so that the turn can be requested again.
func (w *turnWriter) abandon(ctx context.Context) error {
	for _, c := range w.calls {
		if c.hosted && !c.closed {
			w.run.hostedCalls-- // it will not be made
		}
	}
	for _, n := range w.native {
		if w.run.engine.Tools.IsHosted(n.item) {
			w.run.hostedCalls--
		}
	}
	return w.run.writer.Update(ctx, func(body berth.Response) []berth.Event {
		return abandon(body, w.unfinished(), placesOf(w.run.pending))
	})
}

// placesOf returns the places of pending calls, whose items may be open.
func placesOf(pending []pendingCall) map[int]bool {
	open := map[int]bool{}
	for _, c := range pending {
		open[c.index] = true
	}
	return open
}

// keepWhole keeps an item that the provider sent in one piece until the next events are stored.
// A recovery takes a closed last item for the last of its turn, so the item must not be
// stored alone.
func (w *turnWriter) keepWhole(d model.Item) {
	switch {
	case d.Ends && d.Item.Type() == berth.ItemReasoning && w.thought != nil && w.thought.whole.IsZero():
		w.thought.whole = d.Item
	case d.Ends && d.Item.Type() == berth.ItemMessage && w.message != nil && w.message.whole.IsZero():
		w.message.whole = d.Item
	default:
		w.whole = append(w.whole, d.Item)
	}
}

// closeBefore closes the open message or reasoning before further text, unless that text
// continues it.
func (w *turnWriter) closeBefore(continues bool) []berth.Event {
	ended := w.message != nil && !w.message.whole.IsZero() || w.thought != nil && !w.thought.whole.IsZero()
	if continues && !ended && len(w.whole) == 0 {
		return nil
	}
	return w.closeText(false)
}

// timing returns the timing of the call of the model, which ends now with f or failed with err.
func (w *turnWriter) timing(f model.Finish, err error) berth.Timing {
	t := timingSince(berth.TimingModel, w.began)
	t.Upstream, t.Model = f.Origin.Upstream, f.Origin.Model
	if t.Model == "" {
		t.Model = w.run.record.Body.Model
	}
	if !w.first.IsZero() {
		t.FirstTokenMS = new(w.first.Sub(w.began).Milliseconds())
	}
	if err != nil {
		t.Error = chatError(err)
		return t
	}
	t.Usage, t.Cost = &f.Usage, f.Cost
	return t
}
