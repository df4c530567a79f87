package engine

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/tool"
)

// The outcomes of a call, as an Observer is told them.
const (
	OutcomeOK        = "ok"
	OutcomeFailed    = "failed"    // a command of it did
	OutcomeTimeout   = "timeout"   // a command of it was ended for that
	OutcomeError     = "error"     // it could not be made at all
	OutcomeCancelled = "cancelled" // the response ended meanwhile
	OutcomeClient    = "client"    // it was handed to the client
)

// An Observer is told what an engine does, for figures. Its methods must not block.
type Observer interface {
	// Called is told of a call that a tool has answered, or that was handed to the
	// client, by the type of its item. Those of the client took no time.
	Called(t berth.ItemType, outcome string, took time.Duration)
	// Ended is told of a response that has ended and how often the model spoke in it.
	Ended(status berth.Status, turns int)
}

type noObserver struct{}

func (noObserver) Called(berth.ItemType, string, time.Duration) {}
func (noObserver) Ended(berth.Status, int)                      {}

// call runs a call of a hosted tool and tells what came of it.
func (r *run) call(ctx context.Context, c tool.Call) error {
	began := time.Now()
	out := &watched{emitter: emitter{r.writer}, tools: r.engine.Tools, outcome: OutcomeOK}
	err := c.Run(ctx, out)
	switch {
	case errors.Is(context.Cause(ctx), tool.ErrDetached):
		return err // whoever takes it up tells
	case err != nil && ctx.Err() != nil:
		out.outcome = OutcomeCancelled
	case err != nil:
		out.outcome = OutcomeError
	}
	r.engine.Observer.Called(c.Item().Type(), out.outcome, time.Since(began))
	return err
}

// report tells of the run's response, if it has ended.
func (r *run) report() {
	body := r.writer.Body()
	if body.Status.Final() {
		r.engine.Observer.Ended(body.Status, turns(r.engine.Tools, body.Output))
	}
}

// A watched emitter notes how a call's output ends.
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
