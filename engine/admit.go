package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
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
	if err := checkCalls(r.history); err != nil {
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
	if err := checkChecks(req, r.tools); err != nil {
		return nil, err
	}
	if err := checkApprovals(chain.items, input, r.tools); err != nil {
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
func checkCalls(items []berth.Item) error {
	called := map[string]bool{}
	for _, it := range items {
		if tool.IsCall(it) {
			called[it.CallID()] = true
		} else if tool.IsOutput(it) && !called[it.CallID()] {
			return berth.Invalid("input", "No tool call found for %s with call_id %s.", words(it), it.CallID())
		}
	}
	for _, it := range unanswered(items) {
		if it.Status() != berth.StatusIncomplete && !tool.IsHosted(it) {
			return berth.Invalid("input", "No tool output found for %s %s.", words(it), it.CallID())
		}
	}
	return nil
}

// words names a call or an output as OpenAI's messages do: "function call output".
func words(it berth.Item) string { return strings.ReplaceAll(string(it.Type()), "_", " ") }

// settle gives the shell tool its container and shows it in the response's
// tools, which is how a client learns the id.
func (e *Engine) settle(ctx context.Context, caller berth.Caller, body *berth.Response, last berth.ContainerID) (berth.ContainerID, error) {
	var settled berth.ContainerID
	tools := slices.Clone(body.Tools)
	for i, t := range tools {
		var shell berth.ShellTool
		if t.Type() != berth.ToolShell {
			continue
		}
		if err := t.Decode(&shell); err != nil {
			return "", err
		}
		if shell.Environment == nil || shell.Environment.Type == berth.EnvironmentLocal {
			continue
		}
		id, err := e.Containers.Provide(ctx, caller, *shell.Environment, last)
		if err != nil {
			return "", atEnvironment(err, i)
		}
		if tools[i], err = withEnvironment(t, id); err != nil {
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

// withEnvironment returns the shell tool as answered: with a reference to its
// container, other fields as they were.
func withEnvironment(t berth.Tool, id berth.ContainerID) (berth.Tool, error) {
	fields := map[string]json.RawMessage{}
	if err := t.Decode(&fields); err != nil {
		return t, err
	}
	environment, err := json.Marshal(berth.ShellEnvironment{Type: berth.EnvironmentReference, ContainerID: id})
	if err != nil {
		return t, err
	}
	fields["environment"] = environment
	return berth.NewTool(fields), nil
}
