package engine

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/tool"
)

// An outlook holds what a model is shown of a request. A run keeps the outlook of its request;
// a request that is only measured or compacted has no run.
type outlook struct {
	provider   model.Provider // nil without a model
	upstream   string         // the provider's name of the model
	transcript *transcript.Transcript
	tools      toolset
}

// route finds the provider of the model, unless the caller has set one.
func (o *outlook) route(models Router, name string) (err error) {
	if o.provider != nil {
		o.upstream = name
		return nil
	}
	o.provider, o.upstream, err = models.Route(name)
	return err
}

// hasTool reports whether the upstream has a tool of a type itself.
func (o *outlook) hasTool(toolType string) bool {
	return model.HasTool(o.provider, o.upstream, toolType)
}

// read makes the transcript of a request that continues a chain.
func (o *outlook) read(ctx context.Context, s *transcript.Service, p berth.ProjectID, chain transcript.Chain, req *berth.ResponseRequest) (err error) {
	o.transcript, err = s.Prepare(ctx, p, chain, req.PromptItems, req.Input)
	return err
}

// configure completes the response of a request by its context, and binds its tools.
func (o *outlook) configure(kinds *tool.Registry, c tool.Context, body *berth.Response) error {
	items := o.transcript.Items()
	if err := transcript.Configure(body, items); err != nil {
		return err
	}
	return o.bind(kinds, c, body, items)
}

// bind binds the tools of a response in a context.
func (o *outlook) bind(kinds *tool.Registry, c tool.Context, body *berth.Response, items []berth.Item) (err error) {
	if o.tools, err = bindTools(kinds, c, body, items); err != nil {
		return err
	}
	o.tools.setNative(o.transcript)
	return nil
}

// firstRequest returns the provider's request for the first turn.
func (o *outlook) firstRequest(ctx context.Context, req *berth.ResponseRequest, body *berth.Response) (*model.Request, transcript.View, error) {
	view, err := o.transcript.View(ctx, nil)
	if err != nil {
		return nil, view, err
	}
	out := newRequest(req, body, view.Lowered)
	out.Model, out.Tools, out.ToolChoice = o.upstream, o.tools.advise(o.tools.specs, o.upstream), o.tools.choice
	return out, view, nil
}

// foresee returns the first request that a model would get for a request of a client, without a run.
func (e *Engine) foresee(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest) (o outlook, first *model.Request, view transcript.View, err error) {
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
	if err = o.configure(e.Tools, tool.Context{Caller: caller, Include: req.Include, Native: o.hasTool}, body); err != nil {
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
