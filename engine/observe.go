package engine

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// The outcomes of a call that an Observer receives.
const (
	OutcomeOK        = "ok"
	OutcomeFailed    = "failed"    // one of its commands failed
	OutcomeTimeout   = "timeout"   // one of its commands exceeded its time limit
	OutcomeError     = "error"     // the call could not run at all
	OutcomeCancelled = "cancelled" // the response ended first
	OutcomeClient    = "client"    // the client answers it
)

// An Observer counts an engine's calls and responses for metrics. Its methods must not
// block.
type Observer interface {
	// Called reports a call that a tool has answered or that was passed to the client, by
	// the type of its item. took is 0 for a call of the client.
	Called(t berth.ItemType, outcome string, took time.Duration)
	// Ended reports a response that has ended, with the number of its turns.
	Ended(status berth.Status, turns int)
}

type noObserver struct{}

func (noObserver) Called(berth.ItemType, string, time.Duration) {}
func (noObserver) Ended(berth.Status, int)                      {}

// call runs a call of a hosted tool and reports its outcome to the observer.
func (r *run) call(ctx context.Context, c pendingCall) error {
	start := time.Now()
	ctx, traced := traceCall(ctx, c.Item())
	out := &watched{emitter: emitter{r.writer, c.index, c.caller}, tools: r.engine.Tools, outcome: OutcomeOK}
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
	r.addToolTiming(c.Item(), out.outcome, start)
	r.engine.Observer.Called(c.Item().Type(), out.outcome, time.Since(start))
	return err
}

// report reports the run's response to the observer, if it has ended.
func (r *run) report() {
	body := r.writer.Body()
	if body.Status.Final() {
		r.engine.Observer.Ended(body.Status, turns(r.engine.Tools, body.Output))
	}
}

// A watched emitter records the outcome of a call.
type watched struct {
	emitter
	tools   *tool.Registry
	outcome string
}

func (w *watched) Done(ctx context.Context, index int, item berth.Item) error {
	switch w.tools.Outcome(item) {
	case tool.TimedOut:
		w.outcome = OutcomeTimeout
	case tool.Failed:
		w.outcome = OutcomeFailed
	}
	return w.emitter.Done(ctx, index, item)
}
