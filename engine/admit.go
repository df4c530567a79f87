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
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// admit checks what a request needs of the store and settles where its tools run. It
// refuses what can be refused before it makes a container. The run that it returns has
// not been saved.
func (e *Engine) admit(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest, chosen []Option) (*run, error) {
	p := caller.Project
	if req.Background && !req.Stored() {
		return nil, berth.Invalid("background", "Background responses must be stored: 'background' and 'store' false exclude each other.")
	}
	r := &run{engine: e}
	for _, option := range chosen {
		option(r)
	}
	if err := r.route(req.Model); err != nil {
		return nil, err
	}
	if err := r.prepare(ctx, p, req); err != nil {
		return nil, err
	}
	if err := e.checkUntaken(ctx, p, r.options.id); err != nil {
		return nil, err
	}
	id := cmp.Or(r.options.id, berth.ResponseID(berth.NewID(berth.PrefixResponse)))
	body := berth.NewResponse(id, time.Now().Unix(), req)
	if err := transcript.Configure(body, r.transcript.Items()); err != nil {
		return nil, err
	}
	r.record = &store.Response{Project: p, Body: body, Input: r.transcript.Input}
	if err := r.offer(ctx, caller, req); err != nil {
		return nil, err
	}
	if err := r.settle(ctx, caller); err != nil {
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
	kept.Tools = body.Tools // as settled: the environment of a tool may hold secrets
	r.record.Request = &kept
	return r, nil
}

// prepare makes the transcript of a request, and refuses one that no model could be
// shown.
func (r *run) prepare(ctx context.Context, p berth.ProjectID, req *berth.ResponseRequest) error {
	e := r.engine
	chain, err := e.transcripts.Before(ctx, p, r.options.unstored, req)
	if err != nil {
		return err
	}
	if chain.Held {
		return transcript.ErrLocked
	}
	r.transcript, err = e.transcripts.Prepare(ctx, p, chain, req.PromptItems, req.Input)
	if err != nil {
		return err
	}
	r.origin = chain.Origin
	if err := checkIDs(r.transcript.Input, chain.Items); err != nil {
		return err
	}
	if err := e.checkCalls(r.transcript.Items()); err != nil {
		return err
	}
	return r.transcript.Check(ctx)
}

// offer binds the tools of a request and checks what depends on them.
func (r *run) offer(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest) (err error) {
	e, t := r.engine, r.transcript
	if r.tools, err = e.bind(caller, r.record.Body, t.Items()); err != nil {
		return err
	}
	if err := r.tools.checkChecks(req); err != nil {
		return err
	}
	if err := e.checkApprovals(t.Chain.Items, t.Input, r.tools); err != nil {
		return err
	}
	r.window = e.transcripts.Window(e.Models.Window(req.Model))
	return r.checkWindow(ctx, r.record.Body, req)
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

// checkUntaken returns store.ErrExists if an id, unless it is empty, is taken: before a
// container is made for nothing.
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
	for _, it := range transcript.Unanswered(e.Tools, items) {
		if it.Status() != berth.StatusIncomplete && !e.Tools.IsHosted(it) {
			return berth.Invalid("input", "No tool output found for %s %s.", words(it), it.CallID())
		}
	}
	return nil
}

// words names a call or an output as OpenAI's messages do: "function call output".
func words(it berth.Item) string { return strings.ReplaceAll(string(it.Type()), "_", " ") }

// settle provides the containers that tools need, binds the tools to them and shows
// their ids in the response's tools.
func (r *run) settle(ctx context.Context, caller berth.Caller) error {
	e, body := r.engine, r.record.Body
	bound := caller
	bound.Response = body.ID
	tools := slices.Clone(body.Tools)
	for i, t := range tools {
		kind := e.Tools.Kind(t.Type())
		if kind == nil || kind.Container == nil {
			continue
		}
		environment, err := kind.Container.Environment(t)
		if err != nil {
			return err
		}
		if environment == nil {
			continue
		}
		id, err := e.Containers.Provide(ctx, caller, *environment, r.transcript.Chain.Container)
		if err != nil {
			return atEnvironment(err, i)
		}
		if tools[i], err = kind.Container.Settle(t, id); err != nil {
			return err
		}
		if r.tools.byName[kind.Name].Tool, err = kind.Bind(tool.Context{Caller: bound}, tools[i]); err != nil {
			return err
		}
		r.record.Container = id
	}
	body.Tools = tools
	return nil
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
