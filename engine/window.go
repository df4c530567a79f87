package engine

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// CountTokens returns how many tokens the context of a request has: exactly if its
// model's provider can say, else as model.Estimate does. Nothing is saved, no
// container is made, and a call that waits for its output is no fault.
func (e *Engine) CountTokens(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest) (int, error) {
	var provider model.Provider
	var upstream string
	if req.Model != "" {
		var err error
		if provider, upstream, err = e.Models.Route(req.Model); err != nil {
			return 0, err
		}
	}
	chain, err := sourceOf(req.PreviousResponseID, req.Conversation).read(ctx, e, caller.Project)
	if err != nil {
		return 0, err
	}
	input, err := resolveReferences(req.Input, chain.items)
	if err != nil {
		return 0, err
	}
	items, err := e.lower(ctx, caller.Project, append(chain.items[:len(chain.items):len(chain.items)], input...))
	if err != nil {
		return 0, err
	}
	body := berth.NewResponse("", 0, req)
	tools, err := e.bind(caller.Project, body)
	if err != nil {
		return 0, err
	}
	asked := newRequest(req, body, items)
	asked.Model, asked.Tools, asked.ToolChoice = upstream, tools.specs, tools.choice
	return count(ctx, provider, asked)
}

// count returns the tokens of a request's context.
func count(ctx context.Context, p model.Provider, req *model.Request) (int, error) {
	if c, ok := p.(model.Counter); ok {
		return c.CountTokens(ctx, req)
	}
	return model.Estimate(req), nil
}

// checkWindow refuses a context that is known not to fit its model's window, unless
// old items may be dropped. An estimate is known to be too much when it is so by a
// quarter; short of that the upstream decides.
func (e *Engine) checkWindow(ctx context.Context, r *run, body *berth.Response, req *berth.ResponseRequest) error {
	asked := newRequest(req, body, r.history)
	if r.window.size == 0 || body.Truncation == truncationAuto || atMost(asked) <= r.window.size {
		return nil
	}
	items, err := e.lower(ctx, r.record.Project, r.history)
	if err != nil {
		return err
	}
	asked.Model, asked.Items = r.upstream, items
	asked.Tools, asked.ToolChoice = r.tools.specs, r.tools.choice
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
