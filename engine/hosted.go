package engine

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/tool"
)

// An emitter writes the output of a tool's call to the response.
type emitter struct {
	w      *journal.Writer
	call   int               // the place of the call's item
	caller *berth.ToolCaller // the program that made the call, or nil
}

// show returns an item of the call with its caller.
func (e emitter) show(item berth.Item) berth.Item {
	if e.caller == nil {
		return item
	}
	return with(item, map[string]any{"caller": e.caller})
}

func (e emitter) Call() int { return e.call }

func (e emitter) Add(ctx context.Context, item berth.Item) (int, error) {
	item = e.show(item)
	var index int
	err := e.w.Update(ctx, func(body berth.Response) []berth.Event {
		index = len(body.Output)
		return []berth.Event{{Type: berth.EventOutputItemAdded, OutputIndex: &index, Item: &item}}
	})
	return index, err
}

func (e emitter) Emit(ctx context.Context, index int, events ...berth.Event) error {
	if len(events) == 0 {
		return nil
	}
	for i := range events {
		events[i].OutputIndex = &index
	}
	return e.w.Append(ctx, events...)
}

func (e emitter) Done(ctx context.Context, index int, item berth.Item) error {
	item = e.show(item)
	return e.w.Append(ctx, berth.Event{Type: berth.EventOutputItemDone, OutputIndex: &index, Item: &item})
}

// A watchedEmitter emitter records the outcome of a call.
type watchedEmitter struct {
	emitter
	tools   *tool.Registry
	outcome string
}

func (w *watchedEmitter) Done(ctx context.Context, index int, item berth.Item) error {
	switch w.tools.Outcome(item) {
	case tool.TimedOut:
		w.outcome = OutcomeTimeout
	case tool.Failed:
		w.outcome = OutcomeFailed
	}
	return w.emitter.Done(ctx, index, item)
}

// call runs a call of a hosted tool and reports its outcome to the observer.
func (r *run) call(ctx context.Context, c pendingCall) error {
	start := time.Now()
	ctx, traced := traceCall(ctx, c.Item())
	out := &watchedEmitter{emitter: emitter{r.writer, c.index, c.caller}, tools: r.engine.Tools, outcome: OutcomeOK}
	err := c.Run(ctx, out)
	switch {
	case errors.Is(context.Cause(ctx), tool.ErrDetached):
		traced.End()
		return err // the process that resumes the call reports it
	case err != nil && ctx.Err() != nil:
		out.outcome = OutcomeCancelled
	case err != nil:
		out.outcome = OutcomeError
	}
	endCall(traced, out.outcome)
	r.writer.AddTiming(toolTiming(c.Item(), out.outcome, start))
	r.engine.Observer.Called(c.Item().Type(), out.outcome, time.Since(start))
	return err
}

// toolTiming returns the timing of a hosted call that started at a time and ends now.
func toolTiming(call berth.Item, outcome string, start time.Time) berth.Timing {
	t := timingSince(berth.TimingTool, start)
	t.ItemID, t.ItemType = call.ID(), call.Type()
	if outcome != OutcomeOK {
		t.Error = outcome
	}
	return t
}

// timingSince returns a timing from start until now.
func timingSince(kind berth.TimingType, start time.Time) berth.Timing {
	return berth.Timing{Type: kind, StartedAtMS: start.UnixMilli(),
		DurationMS: max(0, time.Since(start).Milliseconds())}
}
