package engine

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// CountTokens returns the number of tokens in the context of a request: exact if the
// provider of its model can count, else an estimate. It stores nothing, makes no
// container, and accepts a call without an output.
func (e *Engine) CountTokens(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest) (int, error) {
	o, err := e.outlook(ctx, caller.Project, req)
	if err != nil {
		return 0, err
	}
	return count(ctx, o.provider, o.request)
}

// An outlook is the context of a request that is only measured or compacted.
type outlook struct {
	provider model.Provider // nil without a model
	view     transcript.View
	request  *model.Request // of the first turn
}

// outlook returns the context that a model would see of a request.
func (e *Engine) outlook(ctx context.Context, p berth.ProjectID, req *berth.ResponseRequest) (o outlook, err error) {
	var upstream string
	if req.Model != "" {
		if o.provider, upstream, err = e.Models.Route(req.Model); err != nil {
			return o, err
		}
	}
	chain, err := e.transcripts.Before(ctx, p, nil, req)
	if err != nil {
		return o, err
	}
	t, err := e.transcripts.Prepare(ctx, p, chain, nil, req.Input)
	if err != nil {
		return o, err
	}
	if o.view, err = t.View(ctx, nil); err != nil {
		return o, err
	}
	body := berth.NewResponse("", 0, req)
	if err := transcript.Configure(body, o.view.Items); err != nil {
		return o, err
	}
	tools, err := bindTools(e.Tools, tool.Context{Caller: berth.Caller{Project: p}, Include: req.Include, Native: nativeTools(o.provider, upstream)}, body, o.view.Items)
	if err != nil {
		return o, err
	}
	if tools.setNative(t); t.Native != nil {
		if o.view, err = t.View(ctx, nil); err != nil {
			return o, err
		}
	}
	o.request = newRequest(req, body, o.view.Lowered)
	o.request.Model, o.request.Tools, o.request.ToolChoice = upstream, tools.advise(tools.specs, upstream), tools.choice
	return o, nil
}

// count returns the number of tokens in a request's context.
func count(ctx context.Context, p model.Provider, req *model.Request) (int, error) {
	if c, ok := p.(model.Counter); ok {
		return c.CountTokens(ctx, req)
	}
	return model.Estimate(req), nil
}

// truncationAuto is the value of "truncation" that lets the engine drop old items.
const truncationAuto = "auto"
