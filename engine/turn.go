package engine

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/model"
)

// turn calls the model and stores its output as events. It reports whether the response is
// over. If not, hosted calls are pending, or the model must be called again. first is true
// for the first turn of the response, the only one that a forced tool choice binds.
func (r *run) turn(ctx context.Context, first bool) (over bool, err error) {
	defer r.transcript.Forget()
	body := r.writer.Body()
	limit := 0
	if body.MaxOutputTokens != nil {
		if limit = *body.MaxOutputTokens - (r.usage.OutputTokens - r.summaryUsage); limit <= 0 {
			return true, r.writer.Update(ctx, func(body berth.Response) []berth.Event {
				return []berth.Event{r.final(body, berth.StatusIncomplete, "max_output_tokens")}
			})
		}
	}
	for attempts := r.engine.newTurnAttempts(); ; {
		req, _, err := r.request(ctx, first, limit)
		if err != nil {
			return false, err
		}
		r.compactor.fit(req)
		req.Prefer, req.Attempt = r.origin, attempts.number
		w := &turnWriter{run: r, calls: map[int]*openCall{}, drafts: newDrafts(r.engine.Tools),
			citables: citablesOf(r.engine.Tools, r.transcript.Items(), body.Output)}
		r.turnWriter = w
		before := r.written
		finish, err := w.stream(ctx, req)
		if err == nil {
			if finish.Usage == (berth.Usage{}) {
				finish.Usage = estimateUsage(req, r.written-before)
			}
			return w.finish(ctx, finish)
		}
		if model.IsTooLong(err) && !w.begun && r.compactor.makeRoom(ctx, req) {
			r.log().Info("retrying turn with less context", "err", err)
			continue
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
	}
}

// stream calls the model and stores the events of its deltas until it has finished.
func (w *turnWriter) stream(ctx context.Context, req *model.Request) (model.Finish, error) {
	for delta, err := range w.run.provider.Stream(ctx, req) {
		if err != nil {
			return model.Finish{}, err
		}
		if finish, ok := delta.(model.Finish); ok {
			return finish, nil
		}
		if w.overflows(delta) {
			w.run.log().Warn("ended response above its output limit", "bytes", w.run.written, "items", w.next)
			return model.Finish{Reason: model.FinishLength, Origin: w.run.origin}, nil
		}
		if w.run.written-w.run.checkedAt > quotaInterval {
			if err := w.run.checkQuota(ctx); err != nil {
				return model.Finish{}, broken{err}
			}
		}
		if err := w.write(ctx, delta); err != nil {
			return model.Finish{}, broken{err}
		}
	}
	if ctx.Err() != nil {
		return model.Finish{}, context.Cause(ctx)
	}
	return model.Finish{}, berth.Errorf(berth.CodeUpstream, "The model stopped in the middle of its answer.")
}

// estimateUsage returns the approximate usage of a turn whose upstream reports none, so
// that budgets and limits include it. answer is in bytes; four bytes count as one token.
func estimateUsage(req *model.Request, answer int64) berth.Usage {
	in, out := model.Estimate(req), int(answer+3)/4
	return berth.Usage{InputTokens: in, OutputTokens: out, TotalTokens: in + out}
}
