package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/tool"
)

// An admission prepares the run that answers one request.
type admission struct {
	engine *Engine
	caller berth.Caller
	req    *berth.ResponseRequest
	run    *run
}

// prepareRun checks the request against the store and settles where its tools run. It refuses
// what it can refuse before it makes a container. The run that it returns is not stored
// yet.
func (a *admission) prepareRun(ctx context.Context, chosen []Option) (*run, error) {
	e, r, req, p := a.engine, a.run, a.req, a.caller.Project
	for _, option := range chosen {
		option(r)
	}
	if err := r.route(e.Models, req.Model); err != nil {
		return nil, err
	}
	if err := a.checkEndUser(ctx); err != nil {
		return nil, err
	}
	if err := a.readTranscript(ctx); err != nil {
		return nil, err
	}
	if err := a.checkID(ctx); err != nil {
		return nil, err
	}
	id := cmp.Or(r.options.id, berth.ResponseID(berth.NewID(berth.PrefixResponse)))
	body := berth.NewResponse(id, time.Now().Unix(), req)
	r.record = &store.Response{Project: p, Body: body, Input: r.transcript.Input}
	if err := a.bindTools(ctx); err != nil {
		return nil, err
	}
	if err := a.provideContainers(ctx); err != nil {
		return nil, err
	}
	if r.record.Container != "" {
		template, err := e.Containers.Template(ctx, p, r.record.Container)
		if err != nil {
			return nil, err
		}
		body.Berth = &berth.ResponseBerth{Template: template}
	}
	addTraceID(ctx, body)
	a.addAnswers(body)
	a.setEndUser(body)
	stored := *req
	stored.Input = nil
	stored.Tools = a.storedTools()
	r.record.Request = &stored
	r.guard = newGuard(r.record, r.tools, e)
	return r, nil
}

// completeTools returns a request whose tools have what the client has omitted.
func (e *Engine) completeTools(ctx context.Context, caller berth.Caller,
	req *berth.ResponseRequest) (*berth.ResponseRequest, error) {
	tools := slices.Clone(req.Tools)
	for i, t := range tools {
		var err error
		if tools[i], err = e.Tools.Complete(ctx, caller, t); err != nil {
			return nil, atTool(err, i)
		}
	}
	completed := *req
	completed.Tools = tools
	return &completed, nil
}

// readTranscript makes the transcript of the request. It refuses a transcript that
// cannot be shown to a model.
func (a *admission) readTranscript(ctx context.Context) error {
	e, r, p := a.engine, a.run, a.caller.Project
	chain, err := e.transcripts.Before(ctx, p, r.options.unstored, a.req)
	if err != nil {
		return err
	}
	if chain.Held {
		return transcript.ErrLocked
	}
	if err := r.read(ctx, e.transcripts, p, chain, a.req); err != nil {
		return err
	}
	r.origin = chain.Origin
	if err := checkIDs(r.transcript.Input, chain.Items); err != nil {
		return err
	}
	if err := checkCalls(e.Tools, r.transcript.Items()); err != nil {
		return err
	}
	return r.transcript.Check(ctx)
}

// checkID returns store.ErrExists if the id that the caller chose is taken. It does so
// before a container is made in vain.
func (a *admission) checkID(ctx context.Context) error {
	id := a.run.options.id
	if id == "" {
		return nil
	}
	_, err := a.engine.Responses.GetResponse(ctx, a.caller.Project, id)
	switch {
	case err == nil:
		return store.ErrExists
	case errors.Is(err, store.ErrNotFound):
		return nil
	}
	return err
}

// bindTools binds the tools of the request and checks the fields that depend on them.
func (a *admission) bindTools(ctx context.Context) error {
	e, r, t := a.engine, a.run, a.run.transcript
	if err := r.configure(e.Tools, r.toolContext(a.caller, a.req.Include), r.record.Body); err != nil {
		return err
	}
	for i, entry := range a.req.Tools {
		if err := a.caller.CheckTool(string(entry.Type())); err != nil {
			return atTool(err, i)
		}
		kind := e.Tools.Kind(entry.Type())
		if kind == nil || kind.Admit == nil {
			continue
		}
		if err := kind.Admit(ctx, a.caller, entry); err != nil {
			return atTool(err, i)
		}
	}
	if err := r.tools.checkChecks(e.Tools, a.req); err != nil {
		return err
	}
	if slices.ContainsFunc(t.Input, isApprovalResponse) && !a.caller.May(berth.MayApprove) {
		return berth.Forbidden(berth.MayApprove)
	}
	if err := checkApprovals(e.Tools, t.Chain.Items, t.Input, r.tools); err != nil {
		return err
	}
	if _, err := r.resumable(e.Tools, t.Input, t.Items()); err != nil {
		return err
	}
	r.compactor = newCompactor(r, e.transcripts.Window(e.Models.Window(a.req.Model)))
	return a.checkWindow(ctx)
}

// checkWindow refuses a context that is known not to fit its model's window, unless old
// items may be dropped or summarised. An estimate must exceed the window by a quarter;
// below that the upstream decides.
func (a *admission) checkWindow(ctx context.Context) error {
	r, req, body, window := a.run, a.req, a.run.record.Body, &a.run.compactor.window
	if window.Size == 0 || body.Truncation == truncationAuto || len(req.ContextManagement) > 0 ||
		transcript.AtMost(newRequest(req, body, r.transcript.Unread())) <= window.Size {
		return nil
	}
	first, _, err := r.firstRequest(ctx, req, body)
	if err != nil {
		return err
	}
	n, bound := 0, window.Size
	if c, exact := r.provider.(model.Counter); exact {
		n, err = c.CountTokens(ctx, first)
	} else {
		n, bound = window.Tokens(first), bound*5/4
	}
	if err == nil && n > bound {
		return model.TooLong("")
	}
	return err
}

// provideContainers provides the containers that tools need, binds the tools to them and shows
// their ids in the response's tools. Tools that request containers of the same kind share
// one, which has the settings of the first tool with any. It removes the secrets of tools.
func (a *admission) provideContainers(ctx context.Context) error {
	e, r, body := a.engine, a.run, a.run.record.Body
	bound := a.caller
	bound.Response = body.ID
	tools := slices.Clone(body.Tools)
	for _, i := range a.bySettings(tools) {
		t := tools[i]
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
		id, err := e.Containers.Provide(ctx, a.caller, *environment, cmp.Or(r.record.Container,
			r.transcript.Chain.Container, r.options.container))
		if err != nil {
			return atEnvironment(err, cmp.Or(kind.Container.Param, "environment"), i)
		}
		r.reservations.provided = append(r.reservations.provided, id)
		if r.options.prepared {
			if err := e.Containers.Begin(ctx, a.caller.Project, id); err != nil {
				return atEnvironment(err, cmp.Or(kind.Container.Param, "environment"), i)
			}
		}
		if tools[i], err = kind.Container.Settle(t, id); err != nil {
			return err
		}
		if err := a.rebind(kind, r.toolContext(bound, a.req.Include), tools[i]); err != nil {
			return err
		}
		r.record.Container = id
	}
	for i, t := range tools {
		if kind := e.Tools.Kind(t.Type()); kind != nil && kind.Show != nil {
			var err error
			if tools[i], err = kind.Show(t); err != nil {
				return err
			}
		}
	}
	body.Tools = tools
	return nil
}

// bySettings returns the places of tools: first of those whose environment has settings.
func (a *admission) bySettings(tools []berth.Tool) []int {
	var set, bare []int
	for i, t := range tools {
		if environment := a.engine.environmentOf(t); environment == nil || environment.Bare() {
			bare = append(bare, i)
		} else {
			set = append(set, i)
		}
	}
	return append(set, bare...)
}

// rebind binds a tool again, now in its container.
func (a *admission) rebind(kind *tool.Kind, c tool.Context, settled berth.Tool) error {
	set := &a.run.tools
	if kind.Source == nil {
		bound, err := kind.Bind(c, settled)
		if err == nil {
			set.replace(kind.Name, bound)
		}
		return err
	}
	source, err := kind.Source(c, settled)
	if err == nil {
		set.replaceSource(set.source(kind.Type, source.Label()), source, a.run.transcript.Items())
	}
	return err
}

// checkIDs refuses input with an item that is in the input or in the chain already.
func checkIDs(input, chain []berth.Item) error {
	known := make(map[string]bool, len(input))
	for _, it := range input {
		if known[it.ID()] {
			return duplicateItem(it.ID())
		}
		if it.ID() != "" {
			known[it.ID()] = true
		}
	}
	if len(known) == 0 {
		return nil
	}
	for _, it := range chain {
		if known[it.ID()] {
			return duplicateItem(it.ID())
		}
	}
	return nil
}

func duplicateItem(id string) error {
	return berth.Invalid("input",
		"Duplicate item found with id %s. Remove duplicate items from your input and try again.", id)
}

// checkCalls refuses a context with a client's call without output, or with an output
// without its call, as the hosted service does. It accepts hosted calls without output,
// which a cancelled response leaves behind.
func checkCalls(tools *tool.Registry, items []berth.Item) error {
	type key struct {
		output berth.ItemType
		callID string
	}
	called := map[key]bool{}
	for _, it := range items {
		if tools.IsCall(it) {
			called[key{tools.CallsOf(it).Output, it.CallID()}] = true
		} else if tools.IsOutput(it) && !called[key{it.Type(), it.CallID()}] {
			return berth.Invalid("input", "No tool call found for %s with call_id %s.", words(it), it.CallID())
		}
	}
	if err := checkOutputs(tools, items); err != nil {
		return err
	}
	for _, it := range transcript.Unanswered(tools, items) {
		if it.Status() != berth.StatusIncomplete && !tools.IsHosted(it) {
			if slices.ContainsFunc(items, func(o berth.Item) bool {
				return tools.IsOutput(o) && o.CallID() == it.CallID()
			}) {
				return berth.Invalid("input",
					"Found more calls than outputs with call_id %s. Send each call once, with its output.", it.CallID())
			}
			return berth.Invalid("input", "No tool output found for %s %s.", words(it), it.CallID())
		}
	}
	return nil
}

// checkOutputs lets the tools check the outputs of their calls.
func checkOutputs(tools *tool.Registry, items []berth.Item) error {
	if !slices.ContainsFunc(items, func(it berth.Item) bool {
		c := tools.CallsOf(it)
		return c != nil && c.CheckOutput != nil
	}) {
		return nil
	}
	for call, output := range transcript.Outputs(tools, items) {
		if c := tools.CallsOf(items[call]); c.CheckOutput != nil {
			if err := c.CheckOutput(items[call], items[output]); err != nil {
				return err
			}
		}
	}
	return nil
}

// words returns the type of a call or an output as in OpenAI's messages: "function call
// output".
func words(it berth.Item) string { return strings.ReplaceAll(string(it.Type()), "_", " ") }

// atEnvironment is atTool for an error about a field of the tool: its environment.
func atEnvironment(err error, field string, i int) error {
	if e, ok := errors.AsType[*berth.Error](err); ok {
		at := *e
		at.Param = strings.TrimSuffix(field+"."+e.Param, ".")
		err = &at
	}
	return atTool(err, i)
}

// storedTools returns the tools as a resumed run needs them. They are as settled, because
// the environment of a tool may hold secrets, unless the environment asks for nothing but a
// new container.
func (a *admission) storedTools() []berth.Tool {
	tools := slices.Clone(a.run.record.Body.Tools)
	for i, t := range a.req.Tools {
		if environment := a.engine.environmentOf(t); environment != nil && environment.Bare() {
			tools[i] = t
		}
	}
	return tools
}
