package engine

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// attempts is how often a turn is asked before the response fails.
const attempts = 4

// turn asks the model once and tells what it says. It reports whether the
// response is over; if not, hosted calls are pending. first is true for the
// first turn of the response, the only one that a forced tool choice binds.
func (r *run) turn(ctx context.Context, first bool) (over bool, err error) {
	body := r.writer.Body()
	limit := 0
	if body.MaxOutputTokens != nil {
		if limit = *body.MaxOutputTokens - (r.usage.OutputTokens - r.summed); limit <= 0 {
			return true, r.writer.Update(ctx, func(body berth.Response) []berth.Event {
				return []berth.Event{r.final(body, berth.StatusIncomplete, "max_output_tokens")}
			})
		}
	}
	for attempt := 1; ; attempt++ {
		req, err := r.request(ctx, first, limit)
		if err != nil {
			return false, err
		}
		r.fit(req)
		s := &speech{run: r, calls: map[int]*openCall{}}
		r.speech = s
		finish, err := s.listen(ctx, req)
		if err == nil {
			return s.finish(ctx, finish)
		}
		if model.IsTooLong(err) && !s.begun && r.makeRoom(ctx, req) {
			r.log().Info("asking the model again with less context", "err", err)
			attempt--
			continue
		}
		if ctx.Err() != nil || attempt == attempts || !retriable(err) {
			return false, err
		}
		r.log().Warn("asking the model again", "attempt", attempt+1, "err", err)
		if err := s.abandon(ctx); err != nil {
			return false, err
		}
		if len(r.pending) > 0 || waitsForClient(r.writer.Body()) {
			return false, nil // calls that were finished are facts; they are answered first
		}
		if err := pause(ctx, backoff(attempt, err)); err != nil {
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
		if err := s.tell(ctx, delta); err != nil {
			return model.Finish{}, broken{err}
		}
	}
	if ctx.Err() != nil {
		return model.Finish{}, context.Cause(ctx)
	}
	return model.Finish{}, berth.Errorf(berth.CodeUpstream, "The model stopped in the middle of its answer.")
}

// broken marks an error of Berth's own, which asking again would not mend.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

func retriable(err error) bool {
	if errors.As(err, new(broken)) {
		return false
	}
	code := berth.ErrorCode(err)
	return code == berth.CodeRateLimited || code == berth.CodeUpstream
}

// backoff is how long to wait before the next attempt.
func backoff(attempt int, err error) time.Duration {
	if d, ok := model.RetryAfter(err); ok {
		return min(d, 30*time.Second)
	}
	return 250 * time.Millisecond << (attempt - 1)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
