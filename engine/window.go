package engine

import (
	"context"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// CountTokens returns how many tokens the context of a request has: exactly if its
// model's provider can say, else as model.Estimate does. Nothing is saved, no
// container is made, and a call that waits for its output is no fault.
func (e *Engine) CountTokens(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest) (int, error) {
	c, err := e.context(ctx, caller.Project, req)
	if err != nil {
		return 0, err
	}
	return count(ctx, c.provider, c.asked)
}

// An outlook is the context of a request that is not to be answered.
type outlook struct {
	provider model.Provider // nil without a model
	items    []berth.Item   // unfolded
	asked    *model.Request // what the model's first turn would be
}

// context returns what a model would see of a request.
func (e *Engine) context(ctx context.Context, p berth.ProjectID, req *berth.ResponseRequest) (c outlook, err error) {
	var upstream string
	if req.Model != "" {
		if c.provider, upstream, err = e.Models.Route(req.Model); err != nil {
			return c, err
		}
	}
	chain, err := sourceOf(req.PreviousResponseID, req.Conversation).read(ctx, e, p)
	if err != nil {
		return c, err
	}
	if err := e.checkSeals(p, req.Input); err != nil {
		return c, err
	}
	input, err := e.resolve(ctx, p, req.Input, chain.items)
	if err != nil {
		return c, err
	}
	if c.items, err = e.unfold(p, slices.Concat(chain.items, input)); err != nil {
		return c, err
	}
	items, err := e.lower(ctx, p, c.items)
	if err != nil {
		return c, err
	}
	body := berth.NewResponse("", 0, req)
	if err := configure(body, c.items); err != nil {
		return c, err
	}
	tools, err := e.bind(berth.Caller{Project: p}, body, c.items)
	if err != nil {
		return c, err
	}
	c.asked = newRequest(req, body, items)
	c.asked.Model, c.asked.Tools, c.asked.ToolChoice = upstream, tools.advise(tools.specs, upstream), tools.choice
	return c, nil
}

// count returns the tokens of a request's context.
func count(ctx context.Context, p model.Provider, req *model.Request) (int, error) {
	if c, ok := p.(model.Counter); ok {
		return c.CountTokens(ctx, req)
	}
	return model.Estimate(req), nil
}

// checkWindow refuses a context that is known not to fit its model's window, unless
// old items may be dropped or summed up. An estimate is known to be too much when
// it is so by a quarter; short of that the upstream decides.
func (e *Engine) checkWindow(ctx context.Context, r *run, body *berth.Response, req *berth.ResponseRequest) error {
	asked := newRequest(req, body, slices.Concat(req.PromptItems, r.history))
	if r.window.size == 0 || body.Truncation == truncationAuto || len(req.ContextManagement) > 0 || atMost(asked) <= r.window.size {
		return nil
	}
	items, err := e.lower(ctx, r.record.Project, asked.Items)
	if err != nil {
		return err
	}
	asked.Model, asked.Items = r.upstream, items
	asked.Tools, asked.ToolChoice = r.tools.advise(r.tools.specs, r.upstream), r.tools.choice
	n, bound := 0, r.window.size
	if _, exact := r.provider.(model.Counter); exact {
		n, err = count(ctx, r.provider, asked)
	} else {
		n, bound = r.window.tokens(asked), bound*5/4
	}
	if err == nil && n > bound {
		return model.TooLong("")
	}
	return err
}
