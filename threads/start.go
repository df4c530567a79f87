package threads

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

// start creates the response of the last leg, unless it exists, and records it. The
// response continues if the client disconnects and, unlike a background response, sends no
// webhooks.
func (s *Service) start(ctx context.Context, c berth.Caller, r *Record) (*Record, error) {
	ctx = context.WithoutCancel(ctx)
	var items []berth.Item
	if len(r.Legs) == 1 {
		var err error
		if items, err = s.context(ctx, c.Project, r); err != nil {
			return nil, err
		}
	}
	if err := s.resources.awaitIndex(ctx, c.Project, &r.Run.ToolResources); err != nil {
		return nil, err
	}
	n := len(r.Legs) - 1
	req, err := r.Request(items)
	if err != nil {
		return nil, err
	}
	if fits, err := s.fit(ctx, c, req, r.Run.MaxPromptTokens); err != nil {
		return nil, err
	} else if !fits {
		return s.endAs(ctx, c, r, func(run *Run) {
			run.Status, run.IncompleteDetails = Incomplete, &Details{Reason: "max_prompt_tokens"}
		})
	}
	_, err = s.Engine.Create(ctx, c, req, engine.As(r.last().Response), engine.InContainer(r.Container))
	if err != nil && !errors.Is(err, store.ErrExists) {
		return nil, err
	}
	id, recorded := r.last().Response, false
	r, err = update(ctx, s.Objects, c.Project, runKey(r.Run.ThreadID, r.Run.ID), func(r *Record) error {
		if recorded = n < len(r.Legs) && r.Legs[n].Response == id; recorded {
			r.Legs[n].Started, r.Legs[n].Outputs = true, nil
		}
		return nil
	})
	switch { // another request may have changed the run in the meantime
	case err == nil && !recorded, berth.ErrorCode(err) == berth.CodeNotFound:
		_ = s.Engine.Delete(ctx, c, id) // the outputs were withdrawn, or the thread was deleted
	case err == nil && r.CancelAt != 0:
		_, err = s.Engine.Cancel(ctx, c, id)
	}
	return r, err
}

// refused reports whether err is a refusal of the engine that a retry cannot change.
func refused(err error) bool {
	return err != nil && berth.ErrorCode(err) != berth.CodeInternal && !later(err)
}

// later reports whether a retry may succeed.
func later(err error) bool {
	switch berth.ErrorCode(err) {
	case berth.CodeRateLimited, berth.CodeUnavailable, berth.CodeUpstream:
		return true
	}
	return false
}

// fit drops the oldest messages of a run's first request until it has at most the given
// number of tokens. It returns false if even the last message alone does not fit.
func (s *Service) fit(ctx context.Context, c berth.Caller, req *berth.ResponseRequest, most *int) (bool, error) {
	if most == nil || req.PreviousResponseID != "" {
		return true, nil
	}
	for {
		n, err := s.Engine.CountTokens(ctx, c, req)
		if err != nil || n <= *most {
			return err == nil, err
		}
		if len(req.Input) < 2 {
			return false, nil
		}
		for over := n - *most; over > 0 && len(req.Input) > 1; req.Input = req.Input[1:] {
			over -= max(1, model.EstimateItem(req.Input[0]))
		}
	}
}

// fail ends a run whose last leg was refused.
func (s *Service) fail(ctx context.Context, c berth.Caller, r *Record, cause error) (*Record, error) {
	e, _ := errors.AsType[*berth.Error](cause)
	return s.endAs(ctx, c, r, func(run *Run) { run.fail(s.Now().Unix(), "invalid_prompt", e.Message) })
}

// endAs ends a run whose last leg has no response.
func (s *Service) endAs(ctx context.Context, c berth.Caller, r *Record, as func(*Run)) (*Record, error) {
	run, used := r.Run, r.Used
	run.Usage = &used
	as(&run)
	return update(ctx, s.Objects, c.Project, runKey(r.Run.ThreadID, r.Run.ID), func(r *Record) error {
		r.end(&run)
		return nil
	})
}

// maxContext is the maximum size of the messages that a run reads from its thread, in bytes.
// It exceeds the context window of any model.
const maxContext = 16 << 20

// context returns the latest messages of the thread according to the run's truncation
// strategy, the oldest first.
func (s *Service) context(ctx context.Context, p berth.ProjectID, r *Record) ([]berth.Item, error) {
	wanted := math.MaxInt
	if t := r.Run.TruncationStrategy; t.LastMessages != nil && t.Type == "last_messages" {
		wanted = *t.LastMessages
	}
	var items []berth.Item
	size := 0
	for page := (store.Page{}); ; {
		page.Limit = min(wanted, 20)
		messages, more, err := list[Message](ctx, s.Objects, p, kindMessage, r.Run.ThreadID, page)
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			wanted--
			page.After = m.ID
			it := m.item()
			if size += len(it.Raw()); size > maxContext && len(items) > 0 {
				more = false
				break
			}
			if !it.IsZero() {
				items = append(items, it)
			}
		}
		if !more || wanted == 0 {
			slices.Reverse(items)
			return items, nil
		}
	}
}
