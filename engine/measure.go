package engine

import (
	"context"
	"slices"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// foresee returns the first request that a model would get for a request of a client, without a run.
func (e *Engine) foresee(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest) (o outlook,
	first *model.Request, view transcript.View, err error) {
	if req, err = e.completeTools(ctx, caller, req); err != nil {
		return o, nil, view, err
	}
	if req.Model != "" {
		if err = o.route(e.Models, req.Model); err != nil {
			return o, nil, view, err
		}
	}
	chain, err := e.transcripts.Before(ctx, caller.Project, nil, req)
	if err != nil {
		return o, nil, view, err
	}
	if err = o.read(ctx, e.transcripts, caller.Project, chain, req); err != nil {
		return o, nil, view, err
	}
	body := berth.NewResponse("", 0, req)
	if err = o.configure(e.Tools, tool.Context{Caller: caller, Include: req.Include, Native: o.hasTool},
		body); err != nil {
		return o, nil, view, err
	}
	first, view, err = o.firstRequest(ctx, req, body)
	return o, first, view, err
}

// CountTokens returns the number of tokens in the context of a request: exact if the
// provider of its model can count, else an estimate. It stores nothing, makes no
// container, and accepts a call without an output.
func (e *Engine) CountTokens(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest) (int, error) {
	o, first, _, err := e.foresee(ctx, caller, req)
	if err != nil {
		return 0, err
	}
	if c, ok := o.provider.(model.Counter); ok {
		return c.CountTokens(ctx, first)
	}
	return model.Estimate(first), nil
}

// Summary returns the summary of a compaction item that the server of an engine has made.
func Summary(e *Engine, p berth.ProjectID, it berth.Item) (string, error) {
	return e.transcripts.Summary(p, it)
}

// Compact returns a shorter context for a request: a summary and the messages that remain
// verbatim. It stores nothing but the usage.
func (e *Engine) Compact(ctx context.Context, caller berth.Caller,
	req *berth.ResponseRequest) (*berth.CompactedResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.base, func() { cancel(errStopping) })()
	booked, err := e.book(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	var usage berth.Usage
	defer func() { booked(usage.TotalTokens) }()
	o, first, view, err := e.foresee(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	s := summarizer{provider: o.provider, window: e.transcripts.Window(e.Models.Window(req.Model)),
		attempts: newTurnAttempts(e.Retry), log: e.Log.With("request_id", caller.RequestID)}
	text, usage, err := s.summarize(ctx, first)
	e.count(ctx, caller, req.Model, usage, s.turns)
	if err != nil {
		return nil, err
	}
	kept := transcript.Survivors(view.Items, s.window.Kept(0))
	it := e.transcripts.Compaction(caller.Project, transcript.Checkpoint{Summary: text, Kept: kept})
	return &berth.CompactedResponse{ID: berth.ResponseID(berth.NewID(berth.PrefixResponse)),
		Object:    "response.compaction",
		CreatedAt: time.Now().Unix(), Output: append(slices.Clone(kept), it), Usage: usage}, nil
}
