package engine

import (
	"context"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/model"
)

// request returns the provider's request for the next turn, and its view of the
// transcript. limit is its max_output_tokens; 0 means no limit.
func (r *run) request(ctx context.Context, first bool, limit int) (*model.Request, transcript.View, error) {
	body := r.writer.Body()
	view, err := r.transcript.View(ctx, r.withRefusals(body.Output))
	if err != nil {
		return nil, view, err
	}
	out := newRequest(r.record.Request, &body, view.Lowered)
	out.Model, out.MaxOutputTokens = r.upstream, limit
	out.Instructions = r.guard.instructed(out.Instructions)
	out.Tools, out.ToolChoice = r.offered(first)
	out.Tools = r.tools.advise(out.Tools, r.upstream)
	out.MaxToolCalls = r.nativeLimit(out.Tools)
	if err := r.addMasks(ctx, out.Tools); err != nil {
		return nil, view, err
	}
	return out, view, nil
}

// newRequest returns a provider's request with lowered items. It leaves out the fields
// that change from turn to turn.
func newRequest(req *berth.ResponseRequest, body *berth.Response, items []berth.Item) *model.Request {
	out := &model.Request{
		Items:             items,
		ParallelToolCalls: body.ParallelToolCalls,
		Temperature:       req.Temperature,
		TopP:              req.TopP,
		TopLogprobs:       req.TopLogprobs,
		Logprobs:          slices.Contains(req.Include, "message.output_text.logprobs"),
		Text:              body.Text,
		Reasoning:         body.Reasoning,
		Sampling:          req.Sampling,
	}
	if req.Instructions != nil {
		out.Instructions = *req.Instructions
	}
	for to, from := range map[*string]*string{&out.User: req.User, &out.Hints.PromptCacheKey: req.PromptCacheKey,
		&out.Hints.PromptCacheRetention: req.PromptCacheRetention, &out.Hints.SafetyIdentifier: req.SafetyIdentifier} {
		if from != nil {
			*to = *from
		}
	}
	out.Hints.ServiceTier = req.ServiceTier
	out.Hints.PromptCacheOptions = req.PromptCacheOptions
	out.Hints.AccessPrograms, out.Hints.Moderation = req.AccessPrograms, req.Moderation
	return out
}

// waitsForClient reports whether the response has calls that the client must answer or
// approve. It must only be called when no hosted call is pending.
func (r *run) waitsForClient(body berth.Response) bool {
	return slices.ContainsFunc(body.Output, needsApproval) || slices.ContainsFunc(transcript.Unanswered(r.engine.Tools, body.Output), func(it berth.Item) bool {
		return it.Status() == berth.StatusCompleted
	})
}
