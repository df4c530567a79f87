// Package messages serves Anthropic's Messages API for any model. It translates only: a message request becomes a
// request for an unstored response, the engine answers it, and the events of the response become the blocks of a
// message. Server tools of the request become hosted tools of the response.
package messages

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/engine"
)

// Routes returns the routes of the door.
func (d *Door) Routes() []exchange.Route {
	// Clients of beta features add "?beta=true".
	const common = exchange.ReadsQuery | exchange.KeyInHeader | exchange.StoresLittle
	routes := append([]exchange.Route{
		exchange.On("POST /v1/messages", d.create, exchange.CallsModel, common),
		exchange.On("POST /v1/messages/count_tokens", d.countTokens, exchange.StoresNothing, common),
	}, slices.Concat(d.modelRoutes(), d.batches.routes(), d.files.routes(), d.skills.routes())...)
	for i := range routes {
		routes[i].WriteError = writeError
		routes[i].Handle = named(routes[i].Handle)
	}
	return routes
}

// named adds the headers of every answer of the door.
func named(handle exchange.Handler) exchange.Handler {
	return func(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
		x.Header().Set(requestID, x.RequestID())
		x.OnHeader(renameRates)
		return handle(x, r, c)
	}
}

// create serves POST /v1/messages. The run ends with the request's context, so it is cancelled if the client
// disconnects.
func (d *Door) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req messageRequest
	body, err := x.DecodeBody(r, createRule, &req)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(r.Context())
	defer leave()
	if d.passes(&req, body) {
		return d.pass(x, r.WithContext(ctx), c, passed{&req, body}, leave)
	}
	a, err := d.start(ctx, c, &req)
	if err != nil {
		return err
	}
	x.Settle()
	if req.Stream {
		return d.stream(x, r.WithContext(ctx), c, a, leave)
	}
	for events, err := range d.Journal.FollowPages(ctx, c.Project, a.response, -1) {
		if err != nil {
			return followError(ctx, err)
		}
		if err := a.applyAll(events); err != nil {
			return a.fail(x.Header(), err)
		}
	}
	if !a.ended {
		return errNoEnd
	}
	return x.JSON(http.StatusOK, d.whole(ctx, c, a))
}

var errNoEnd = errors.New("the journal of a message's response has no end")

// start starts the response of a message.
func (d *Door) start(ctx context.Context, c berth.Caller, req *messageRequest) (*answer, error) {
	if err := d.skills.pin(ctx, c, req); err != nil {
		return nil, err
	}
	translated, err := req.translate(d.items)
	if err != nil {
		return nil, err
	}
	created, err := d.Engine.Create(ctx, c, translated.request)
	if err != nil {
		return nil, translated.placeError(err)
	}
	a := newAnswer(req, created, d.Engine.Tools)
	for _, it := range translated.request.Input { // the programs of earlier answers, which may end in this one
		if p := (berth.Program{}); it.Type() == berth.ItemProgram && it.Decode(&p) == nil {
			a.programs[p.CallID] = programID(&p)
		}
	}
	a.summary = func(it berth.Item) (string, error) { return engine.Summary(d.Engine, c.Project, it) }
	a.outputs = func() map[string]berth.FileID { return d.files.ids(ctx, c, a.container) }
	return a, nil
}

// followError returns the client's error for a failed read of a response's events.
func followError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &berth.Error{Code: berth.CodeUnavailable, Err: err,
			Message: "The server is stopping. Send the request again in a moment."}
	}
	return err
}

// countTokens serves POST /v1/messages/count_tokens.
func (d *Door) countTokens(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var req messageRequest
	if err := x.Decode(r, countRule, &req); err != nil {
		return err
	}
	translated, err := req.translate(d.items)
	if err != nil {
		return err
	}
	n, err := d.Engine.CountTokens(r.Context(), c, translated.request)
	if err != nil {
		return translated.placeError(err)
	}
	counted := struct {
		InputTokens int             `json:"input_tokens"`
		Context     *contextApplied `json:"context_management,omitempty"`
	}{InputTokens: n}
	if req.ContextManagement != nil {
		before := n + req.clearedTokens()
		counted.Context = &contextApplied{OriginalInputTokens: &before}
	}
	return x.JSON(http.StatusOK, counted)
}
