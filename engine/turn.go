package engine

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/model"
)

// turn asks the model once and tells what it says. It reports whether the
// response is over; if not, hosted calls are pending. first is true for the
// first turn of the response, the only one that a forced tool choice binds.
func (r *run) turn(ctx context.Context, first bool) (over bool, err error) {
	defer r.transcript.Forget()
	body := r.writer.Body()
	limit := 0
	if body.MaxOutputTokens != nil {
		if limit = *body.MaxOutputTokens - (r.usage.OutputTokens - r.summed); limit <= 0 {
			return true, r.writer.Update(ctx, func(body berth.Response) []berth.Event {
				return []berth.Event{r.final(body, berth.StatusIncomplete, "max_output_tokens")}
			})
		}
	}
	for patience := r.engine.patience(); ; {
		req, _, err := r.request(ctx, first, limit)
		if err != nil {
			return false, err
		}
		r.fit(req)
		req.Prefer, req.Attempt = r.origin, patience.attempt
		s := &speech{run: r, calls: map[int]*openCall{}, drafts: newDrafts(r.engine.Tools)}
		r.speech = s
		before := r.said
		finish, err := s.listen(ctx, req)
		if err == nil {
			if finish.Usage == (berth.Usage{}) {
				finish.Usage = estimateUsage(req, r.said-before)
			}
			return s.finish(ctx, finish)
		}
		if model.IsTooLong(err) && !s.begun && r.makeRoom(ctx, req) {
			r.log().Info("asking the model again with less context", "err", err)
			continue
		}
		after, more := patience.more(err, s.begun)
		if ctx.Err() != nil || !more {
			return false, err
		}
		r.log().Warn("asking the model again", "attempt", patience.attempt+1, "after", after, "err", err)
		if err := s.abandon(ctx); err != nil {
			return false, err
		}
		if len(r.pending) > 0 || r.waitsForClient(r.writer.Body()) {
			return false, nil // calls that were finished are facts; they are answered first
		}
		if err := backoff.Sleep(ctx, after); err != nil {
			return false, err
		}
	}
}

// listen tells what the model says until it has finished.
func (s *speech) listen(ctx context.Context, req *model.Request) (model.Finish, error) {
	for delta, err := range s.run.provider.Stream(ctx, req) {
		if err != nil {
			return model.Finish{}, err
		}
		if finish, ok := delta.(model.Finish); ok {
			return finish, nil
		}
		if s.overflows(delta) {
			s.run.log().Warn("ended an answer that is too long", "bytes", s.run.said, "items", s.next)
			return model.Finish{Reason: model.FinishLength, Origin: s.run.origin}, nil
		}
		if s.run.said-s.run.storedAt > fullEvery {
			if err := s.run.full(ctx); err != nil {
				return model.Finish{}, broken{err}
			}
		}
		if err := s.tell(ctx, delta); err != nil {
			return model.Finish{}, broken{err}
		}
	}
	if ctx.Err() != nil {
		return model.Finish{}, context.Cause(ctx)
	}
	return model.Finish{}, berth.Errorf(berth.CodeUpstream, "The model stopped in the middle of its answer.")
}

// estimateUsage returns about what a turn used whose upstream did not report it, so that
// budgets and limits hold for it too. The answer counts one token for four bytes.
func estimateUsage(req *model.Request, answer int64) berth.Usage {
	in, out := model.Estimate(req), int(answer+3)/4
	return berth.Usage{InputTokens: in, OutputTokens: out, TotalTokens: in + out}
}
