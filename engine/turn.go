package engine

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// turn calls the model and stores its output as events. It reports whether the response is
// over. If not, hosted calls are pending, or the model must be called again. first is true
// for the first turn of the response, the only one that a forced tool choice binds.
//
// While the model answers, the stack of the run has the frames of main, turns, turn, stream
// and the provider. Together they stay below 7 KB, so that the garbage collector can shrink
// the stack to 16 KB: variables only needed before or after are in functions of their own.
func (r *run) turn(ctx context.Context, first bool) (over bool, err error) {
	defer r.transcript.Forget()
	limit, exhausted := r.outputLimit()
	if exhausted {
		return true, r.finish(ctx, berth.StatusIncomplete, "max_output_tokens")
	}
	for attempts := newTurnAttempts(r.engine.Retry); ; {
		req, err := r.prepare(ctx, first, limit, attempts.number)
		if err != nil {
			return false, err
		}
		w, before := r.turnWriter, r.written
		err = w.stream(w.trace(ctx, req), req)
		if w.endSpan(err); err == nil {
			return w.end(ctx, req, before)
		}
		if again, err := r.afterFailure(ctx, req, attempts, err); !again {
			return false, err
		}
	}
}

// outputLimit returns how many tokens the model may still write; 0 means no limit.
// exhausted means that it may write none.
//
//go:noinline
func (r *run) outputLimit() (limit int, exhausted bool) {
	body := r.writer.Body()
	if body.MaxOutputTokens == nil {
		return 0, false
	}
	limit = *body.MaxOutputTokens - (r.usage.OutputTokens - r.summaryUsage)
	return limit, limit <= 0
}

// prepare returns the request of the next attempt at a turn and sets its turnWriter.
//
//go:noinline
func (r *run) prepare(ctx context.Context, first bool, limit, attempt int) (*model.Request, error) {
	body := r.writer.Body()
	req, _, err := r.request(ctx, first, limit)
	if err != nil {
		return nil, err
	}
	r.compactor.fit(req)
	req.Prefer, req.Attempt = r.origin, attempt
	r.turnWriter = &turnWriter{run: r, calls: map[int]*openCall{}, drafts: newDrafts(r.engine.Tools),
		citables: citablesOf(r.engine.Tools, r.transcript.Items(), body.Output)}
	return req, nil
}

// afterFailure reports whether to request the turn again after an error of stream. It waits
// before it does.
//
//go:noinline
func (r *run) afterFailure(ctx context.Context, req *model.Request, attempts *turnAttempts, err error) (again bool,
	_ error) {
	w := r.turnWriter
	if model.IsTooLong(err) && !w.begun && r.compactor.makeRoom(ctx, req) {
		r.log().Info("retrying turn with less context", "err", err)
		return true, nil
	}
	after, more := attempts.next(err, w.begun)
	if ctx.Err() != nil || !more {
		return false, err
	}
	r.log().Warn("retrying turn", "attempt", attempts.number+1, "after", after, "err", err)
	if err := w.abandon(ctx); err != nil {
		return false, err
	}
	if len(r.pending) > 0 || r.waitsForClient(r.writer.Body()) {
		return false, nil // finished calls are answered before the next turn
	}
	if err := backoff.Sleep(ctx, after); err != nil {
		return false, err
	}
	return true, nil
}

// stream calls the model and stores the events of its deltas until it has finished.
func (w *turnWriter) stream(ctx context.Context, req *model.Request) error {
	for delta, err := range w.run.provider.Stream(ctx, req) {
		if err != nil {
			return err
		}
		if over, err := w.receive(ctx, delta); over || err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return berth.Errorf(berth.CodeUpstream, "The model stopped in the middle of its answer.")
}

// receive stores the events of a delta. It reports whether the turn is over, whose result is
// in finished then.
//
//go:noinline
func (w *turnWriter) receive(ctx context.Context, delta model.Delta) (over bool, err error) {
	if finish, ok := delta.(model.Finish); ok {
		w.finished = finish
		return true, nil
	}
	if w.overflows(delta) {
		w.run.log().Warn("ended response above its output limit", "bytes", w.run.written, "items", w.next)
		w.finished = model.Finish{Reason: model.FinishLength, Origin: w.run.origin}
		return true, nil
	}
	if w.run.written-w.run.checkedAt > quotaInterval {
		if err := w.run.checkQuota(ctx); err != nil {
			return false, broken{err}
		}
	}
	if err := w.write(ctx, delta); err != nil {
		return false, broken{err}
	}
	return false, nil
}

// end stores the end of a turn whose stream has ended. before is the value of written at
// its start. It reports whether the response is over.
func (w *turnWriter) end(ctx context.Context, req *model.Request, before int64) (over bool, err error) {
	if w.finished.Usage == (berth.Usage{}) {
		w.finished.Usage = estimateUsage(req, w.run.written-before)
	}
	return w.finish(ctx, w.finished)
}

// estimateUsage returns the approximate usage of a turn whose upstream reports none, so
// that budgets and limits include it. answer is in bytes; four bytes count as one token.
func estimateUsage(req *model.Request, answer int64) berth.Usage {
	in, out := model.Estimate(req), int(answer+3)/4
	return berth.Usage{InputTokens: in, OutputTokens: out, TotalTokens: in + out}
}

// trace starts the span of a call of the model. The caller ends it with end.
//
//go:noinline
func (w *turnWriter) trace(ctx context.Context, req *model.Request) context.Context {
	w.began = time.Now()
	ctx, w.span = traceChat(ctx, req.Model)
	return ctx
}

// endSpan ends the span of the call of the model, with its error, if any, and adds the timing of an
// error. That of a call without error is added with its usage.
//
//go:noinline
func (w *turnWriter) endSpan(err error) {
	endChat(w.span, w.finished, err)
	if err != nil && !errors.Is(err, tool.ErrDetached) {
		w.run.writer.AddTiming(w.timing(model.Finish{Origin: w.run.origin}, err))
	}
}

// checkQuota returns an error if the run's project has reached its storage limit. The run
// then ends; its last event is stored nevertheless.
func (r *run) checkQuota(ctx context.Context) error {
	r.checkedAt = r.written
	return r.engine.Quota.Full(ctx, r.record.Project)
}
