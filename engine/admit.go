package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// admit checks what a request needs of the store and settles where its shell
// runs. What can be refused is refused before a container is made. The run it
// returns has not been saved.
func (e *Engine) admit(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest, options []Option) (*run, error) {
	p := caller.Project
	if req.Background && !req.Stored() {
		return nil, berth.Invalid("background", "Background responses must be stored: 'background' and 'store' false exclude each other.")
	}
	r := &run{engine: e}
	for _, option := range options {
		option(r)
	}
	var err error
	if err := r.route(req.Model); err != nil {
		return nil, err
	}
	chain, err := e.before(ctx, p, r.memory, req)
	if err != nil {
		return nil, err
	}
	if chain.held {
		return nil, errLocked
	}
	if err := e.checkSeals(p, req.Input); err != nil {
		return nil, err
	}
	input, err := e.resolve(ctx, p, req.Input, chain.items)
	if err != nil {
		return nil, err
	}
	if err := checkIDs(input, chain.items); err != nil {
		return nil, err
	}
	r.chain, r.origin, r.history = chain, chain.origin, slices.Concat(chain.items, input)
	if err := e.checkCalls(r.history); err != nil {
		return nil, err
	}
	if _, err := e.lower(ctx, p, slices.Concat(req.PromptItems, input)); err != nil {
		return nil, err // a file that is not there, for example
	}
	if err := e.checkUntaken(ctx, p, r.as); err != nil {
		return nil, err
	}
	id := cmp.Or(r.as, berth.ResponseID(berth.NewID(berth.PrefixResponse)))
	body := berth.NewResponse(id, time.Now().Unix(), req)
	if err := configure(body, r.history); err != nil {
		return nil, err
	}
	if r.tools, err = e.bind(caller, body, r.history); err != nil {
		return nil, err // before a container is made for nothing
	}
	if err := r.tools.checkChecks(req); err != nil {
		return nil, err
	}
	if err := e.checkApprovals(chain.items, input, r.tools); err != nil {
		return nil, err
	}
	r.record = &store.Response{Project: p, Body: body, Input: input}
	r.window = e.window(req.Model)
	if err := e.checkWindow(ctx, r, body, req); err != nil {
		return nil, err
	}
	if r.record.Container, err = e.settle(ctx, caller, body, chain.container); err != nil {
		return nil, err
	}
	if r.tools, err = e.bind(caller, body, r.history); err != nil {
		return nil, err
	}
	if r.record.Container != "" {
		template, err := e.Containers.Template(ctx, p, r.record.Container)
		if err != nil {
			return nil, err
		}
		body.Berth = &berth.ResponseBerth{Template: template}
	}
	kept := *req
	kept.Input = nil
	kept.Tools = body.Tools // as settled: what a shell's environment said may hold secrets
	r.record.Request = &kept
	return r, nil
}

// route finds the provider of a model, unless the run has one.
func (r *run) route(model string) (err error) {
	if r.provider != nil {
		r.upstream = model
		return nil
	}
	r.provider, r.upstream, err = r.engine.Models.Route(model)
	return err
}

// checkUntaken saves a container for a response whose id, if it is not empty, is
// taken.
func (e *Engine) checkUntaken(ctx context.Context, p berth.ProjectID, id berth.ResponseID) error {
	if id == "" {
		return nil
	}
	_, err := e.Responses.GetResponse(ctx, p, id)
	switch {
	case err == nil:
		return store.ErrExists
	case errors.Is(err, store.ErrNotFound):
		return nil
	}
	return err
}

// checkIDs refuses input that brings an item a second time.
func checkIDs(input, chain []berth.Item) error {
	brought := make(map[string]bool, len(input))
	for _, it := range input {
		if brought[it.ID()] {
			return duplicateItem(it.ID())
		}
		brought[it.ID()] = it.ID() != ""
	}
	for _, it := range chain {
		if brought[it.ID()] {
			return duplicateItem(it.ID())
		}
	}
	return nil
}

func duplicateItem(id string) error {
	return berth.Invalid("input", "Duplicate item found with id %s. Remove duplicate items from your input and try again.", id)
}

// checkCalls refuses a context in which a call of the client's lacks its output,
// or an output its call, as the hosted service does. Calls of hosted tools that a
// cancelled response left behind are not the client's to answer.
func (e *Engine) checkCalls(items []berth.Item) error {
	called := map[string]bool{}
	for _, it := range items {
		if e.Tools.IsCall(it) {
			called[it.CallID()] = true
		} else if e.Tools.IsOutput(it) && !called[it.CallID()] {
			return berth.Invalid("input", "No tool call found for %s with call_id %s.", words(it), it.CallID())
		}
	}
	for _, it := range unanswered(e.Tools, items) {
		if it.Status() != berth.StatusIncomplete && !e.Tools.IsHosted(it) {
			return berth.Invalid("input", "No tool output found for %s %s.", words(it), it.CallID())
		}
	}
	return nil
}

// words names a call or an output as OpenAI's messages do: "function call output".
func words(it berth.Item) string { return strings.ReplaceAll(string(it.Type()), "_", " ") }

// settle provides the containers that tools need, and shows their ids in the response's
// tools. It returns the last one.
func (e *Engine) settle(ctx context.Context, caller berth.Caller, body *berth.Response, last berth.ContainerID) (berth.ContainerID, error) {
	var settled berth.ContainerID
	tools := slices.Clone(body.Tools)
	for i, t := range tools {
		kind := e.Tools.Kind(t.Type())
		if kind == nil || kind.Container == nil {
			continue
		}
		environment, err := kind.Container.Environment(t)
		if err != nil {
			return "", err
		}
		if environment == nil {
			continue
		}
		id, err := e.Containers.Provide(ctx, caller, *environment, last)
		if err != nil {
			return "", atEnvironment(err, i)
		}
		if tools[i], err = kind.Container.Settle(t, id); err != nil {
			return "", err
		}
		settled = id
	}
	body.Tools = tools
	return settled, nil
}

// atTool completes the parameter of an error about a tool.
func atTool(err error, i int) error {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok {
		return err
	}
	at := *e
	at.Param = fmt.Sprintf("tools[%d]", i)
	if e.Param != "" {
		at.Param += "." + e.Param
	}
	return &at
}

// atEnvironment is atTool for an error about the environment.
func atEnvironment(err error, i int) error {
	if e, ok := errors.AsType[*berth.Error](err); ok {
		at := *e
		at.Param = strings.TrimSuffix("environment."+e.Param, ".")
		err = &at
	}
	return atTool(err, i)
}
