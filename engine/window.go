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
	chain, err := e.chain(ctx, caller.Project, req.PreviousResponseID)
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
