package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/internal/jsonscan"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/responses"
)

// storedResponses serves responses.
type storedResponses struct {
	engine  *engine.Engine
	rules   *request.Rules
	journal *journal.Journal
	store   *responses.Store
	prompts *storedPrompts
}

// create serves POST /v1/responses. The run of a foreground response is cancelled with the
// request's context, so it ends if the client disconnects.
func (h *storedResponses) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	req, err := h.decode(x, r)
	if err != nil {
		return err
	}
	hold, release := x.HandOver()
	defer release()
	created, err := h.start(r.Context(), c, req, engine.Holding(hold))
	if err != nil {
		return err
	}
	switch {
	case req.Stream:
		return h.stream(x, r, c.Project, created.ID, -1, exchange.Obfuscates(req))
	case req.Background:
		return x.JSON(http.StatusOK, created)
	}
	return h.final(r.Context(), c.Project, created.ID, func(final json.RawMessage) error {
		return x.JSON(http.StatusOK, final)
	})
}

// decode reads the body of POST /v1/responses and completes its input items.
func (h *storedResponses) decode(x *exchange.Exchange, r *http.Request) (*berth.ResponseRequest, error) {
	var req berth.ResponseRequest
	if err := x.Decode(r, h.rules.Create, &req); err != nil {
		return nil, err
	}
	return &req, h.rules.Complete(&req)
}

// start creates a response for a complete request from a POST or a WebSocket.
func (h *storedResponses) start(ctx context.Context, c berth.Caller, req *berth.ResponseRequest,
	options ...engine.Option) (*berth.Response, error) {
	if !c.May(berth.MayRun) && !onlyAnswers(req) {
		return nil, berth.Forbidden(berth.MayRun)
	}
	if err := h.inherit(ctx, c.Project, req); err != nil {
		return nil, err
	}
	if err := h.prompts.apply(ctx, c.Project, req); err != nil {
		return nil, err
	}
	return h.engine.Create(ctx, c, req, options...)
}

// onlyAnswers reports whether a request only answers what waits for approval: the rest of it is that of the response
// before. A caller who may approve, but not run, can ask for no more.
func onlyAnswers(req *berth.ResponseRequest) bool {
	rest := *req
	rest.Input, rest.PreviousResponseID, rest.Berth = nil, "", nil
	rest.Store, rest.Stream, rest.StreamOptions, rest.Background = nil, false, nil, false
	return req.PreviousResponseID != "" && reflect.DeepEqual(req.Berth, &berth.RequestBerth{Inherit: true}) &&
		reflect.DeepEqual(rest, berth.ResponseRequest{}) && len(req.Input) > 0 &&
		!slices.ContainsFunc(req.Input, func(it berth.Item) bool { return it.Type() != berth.ItemApprovalResponse })
}

// inherit completes a request that inherits the fields of its previous response's request.
func (h *storedResponses) inherit(ctx context.Context, p berth.ProjectID, req *berth.ResponseRequest) error {
	if req.Berth == nil || !req.Berth.Inherit {
		return nil
	}
	previous, err := h.store.Request(ctx, p, req.PreviousResponseID)
	if errors.Is(err, berth.ErrNotFound) {
		return &berth.Error{Code: berth.CodeInvalid, Param: "previous_response_id", Wire: "previous_response_not_found",
			Message: fmt.Sprintf("Previous response with id '%s' not found. 'berth.inherit' needs one that is stored.",
				req.PreviousResponseID)}
	}
	if err != nil {
		return err
	}
	return request.Inherit(req, previous)
}

// final waits for the end of a response and calls answer with its object. If the response
// failed before it made any call, final returns the failure as an error, as OpenAI does,
// and clients retry. A response that has made calls is not an error: a retry would repeat
// them.
func (h *storedResponses) final(ctx context.Context, p berth.ProjectID, id berth.ResponseID,
	answer func(json.RawMessage) error) error {
	var failure berth.Event
	for ev, err := range h.journal.Follow(ctx, p, id, -1) {
		if err != nil {
			return exchange.FollowError(ctx, id, err)
		}
		if ev.Type == berth.EventErrored {
			if err := json.Unmarshal(ev.Data, &failure); err != nil {
				return fmt.Errorf("decode event: %w", err)
			}
		}
		if !ev.Type.Final() {
			continue
		}
		start, end, ok := jsonscan.Field(ev.Data, "response")
		if !ok {
			return fmt.Errorf("the last event of %s has no response", id)
		}
		object := ev.Data[start:end:end]
		if ev.Type == berth.EventFailed && failure.Error != nil {
			var body struct{ Output []berth.Item }
			if err := json.Unmarshal(object, &body); err != nil {
				return fmt.Errorf("decode output: %w", err)
			}
			if !slices.ContainsFunc(body.Output, isAction) {
				return exchange.EventError(failure.Error)
			}
		}
		return answer(object)
	}
	return errors.New("the journal of " + string(id) + " has no end")
}

// stream streams the events of a response after a sequence number until its end, at the
// client's pace. It sends errors as an error event; its own error is only logged.
func (h *storedResponses) stream(x *exchange.Exchange, r *http.Request, p berth.ProjectID, id berth.ResponseID,
	after int64, obfuscate bool) error {
	out, ctx := x.Stream(r, obfuscate)
	defer out.Close()
	for events, err := range h.journal.FollowPages(ctx, p, id, after) {
		if ctx.Err() != nil && r.Context().Err() == nil {
			return nil // a keep-alive has detected that the client is gone
		}
		if err != nil {
			return out.Fail(after+1, exchange.FollowError(ctx, id, err))
		}
		after = events[len(events)-1].SequenceNumber
		if out.Events(events) != nil {
			return nil
		}
	}
	return nil
}

// isAction reports whether an item is something other than text or a list of tools, such as
// a call.
func isAction(it berth.Item) bool {
	return it.Type() != berth.ItemMessage && it.Type() != berth.ItemReasoning && it.Type() != berth.ItemMCPListTools
}

// get serves GET /v1/responses/{response}: the current object or, with stream=true, all
// events after starting_after.
func (h *storedResponses) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	q.List("include", request.Includable)
	stream := q.Boolean("stream", streamInBody(r))
	after := q.Integer("starting_after", -1, -1, 1<<53)
	obfuscate := q.Boolean("include_obfuscation", true)
	if err := q.End(); err != nil {
		return err
	}
	if !stream && r.URL.Query().Has("starting_after") {
		return berth.Invalid("starting_after",
			"The 'starting_after' parameter is only allowed when 'stream' is enabled.")
	}
	id := berth.ResponseID(r.PathValue("response"))
	if err := h.store.Check(r.Context(), c.Project, id); err != nil {
		return err
	}
	if stream {
		return h.stream(x, r, c.Project, id, after, obfuscate)
	}
	pieces, err := h.store.Read(r.Context(), c.Project, id)
	if err != nil {
		return err
	}
	x.Pieces(http.StatusOK, pieces...)
	return nil
}

// streamInBody reports whether a GET requests a stream in its body. OpenAI's Go client
// does that instead of using the query.
func streamInBody(r *http.Request) bool {
	var body struct{ Stream bool }
	return exchange.IsJSON(r) && json.NewDecoder(io.LimitReader(r.Body, 4<<10)).Decode(&body) == nil && body.Stream
}

// cancel serves POST /v1/responses/{response}/cancel.
func (h *storedResponses) cancel(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	rec, err := h.store.Get(r.Context(), c.Project, berth.ResponseID(r.PathValue("response")))
	if err != nil {
		return err
	}
	if rec.Body.Status.Final() && !rec.Body.Background {
		return berth.Errorf(berth.CodeInvalid, "Cannot cancel a synchronous response.")
	}
	body, err := h.engine.Cancel(r.Context(), c, berth.ResponseID(r.PathValue("response")))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, body)
}

// delete serves DELETE /v1/responses/{response}.
func (h *storedResponses) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := berth.ResponseID(r.PathValue("response"))
	if err := h.engine.Delete(r.Context(), c, id); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Deleted(id, "response"))
}

// listInput serves GET /v1/responses/{response}/input_items: the items that this request
// added to its chain, in the full form of request.Normalize.
func (h *storedResponses) listInput(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	q.List("include", request.Includable)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	rec, err := h.store.Get(r.Context(), c.Project, berth.ResponseID(r.PathValue("response")))
	if err != nil {
		return err
	}
	items, more, err := exchange.PageOf(rec.Input, page, berth.Item.ID)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.ListOf(items, more, berth.Item.ID))
}
