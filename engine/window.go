package engine

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/model"
)

// CountTokens returns how many tokens the context of a request has: exactly if its
// model's provider can count, else as model.Estimate does. It saves nothing and makes no
// container, and accepts a call without an output.
func (e *Engine) CountTokens(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest) (int, error) {
	o, err := e.outlook(ctx, caller.Project, req)
	if err != nil {
		return 0, err
	}
	return count(ctx, o.provider, o.request)
}

// An outlook is the context of a request that is not answered.
type outlook struct {
	provider model.Provider // nil without a model
	view     transcript.View
	request  *model.Request // of the first turn
}

// outlook returns what a model would see of a request.
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
	tools, err := e.bind(berth.Caller{Project: p}, body, o.view.Items)
	if err != nil {
		return o, err
	}
	o.request = newRequest(req, body, o.view.Lowered)
	o.request.Model, o.request.Tools, o.request.ToolChoice = upstream, tools.advise(tools.specs, upstream), tools.choice
	return o, nil
}

// count returns the tokens of a request's context.
func count(ctx context.Context, p model.Provider, req *model.Request) (int, error) {
	if c, ok := p.(model.Counter); ok {
		return c.CountTokens(ctx, req)
	}
	return model.Estimate(req), nil
}

// checkWindow refuses a context that is known not to fit its model's window, unless old
// items may be dropped or summarised. An estimate must exceed the window by a quarter;
// below that the upstream decides.
func (r *run) checkWindow(ctx context.Context, body *berth.Response, req *berth.ResponseRequest) error {
	if r.window.Size == 0 || body.Truncation == truncationAuto || len(req.ContextManagement) > 0 ||
		transcript.AtMost(newRequest(req, body, r.transcript.Unread())) <= r.window.Size {
		return nil
	}
	view, err := r.transcript.View(ctx, nil)
	if err != nil {
		return err
	}
	asked := newRequest(req, body, view.Lowered)
	asked.Model, asked.Tools, asked.ToolChoice = r.upstream, r.tools.advise(r.tools.specs, r.upstream), r.tools.choice
	n, bound := 0, r.window.Size
	if _, exact := r.provider.(model.Counter); exact {
		n, err = count(ctx, r.provider, asked)
	} else {
		n, bound = r.window.Tokens(asked), bound*5/4
	}
	if err == nil && n > bound {
		return model.TooLong("")
	}
	return err
}

// truncationAuto is the "truncation" with which old items may be dropped.
const truncationAuto = "auto"

// fit drops the oldest items of a request whose response allows it, until the context is
// within what the model is known to take.
func (r *run) fit(req *model.Request) {
	if r.record.Body.Truncation != truncationAuto {
		return
	}
	if dropped := r.window.Fit(req); dropped > 0 {
		r.log().Info("old items are left out of the context", "items", dropped)
	}
}
