package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/internal/jsonscan"
	"github.com/berth-run/berth/store"
)

// createResponse serves POST /v1/responses. The run of a foreground response
// ends with the request's context, that is when its client goes.
func (s *server) createResponse(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	req, err := s.decodeResponseRequest(w, r)
	if err != nil {
		return err
	}
	hold, release := handOver(w)
	defer release()
	created, err := s.create(r.Context(), c, req, engine.Holding(hold))
	if err != nil {
		return err
	}
	switch {
	case req.Stream:
		return s.stream(w, r, c.Project, created.ID, -1, obfuscates(req))
	case req.Background:
		return writeJSON(w, http.StatusOK, created)
	}
	return s.final(r.Context(), c.Project, created.ID, func(final json.RawMessage) error {
		return writeJSON(w, http.StatusOK, final)
	})
}

// create has a decoded request answered: of a POST or of a socket.
func (s *server) create(ctx context.Context, c berth.Caller, req *berth.ResponseRequest, options ...engine.Option) (*berth.Response, error) {
	if err := s.applyPrompt(ctx, c.Project, req); err != nil {
		return nil, err
	}
	return s.Engine.Create(ctx, c, req, options...)
}

// obfuscates reports whether the stream of a request hides the lengths of its
// tokens, which is the default.
func obfuscates(req *berth.ResponseRequest) bool {
	return req.StreamOptions == nil || req.StreamOptions.IncludeObfuscation == nil || *req.StreamOptions.IncludeObfuscation
}

// final waits for the end of a response and has its object answered. One that failed
// with nothing done is an error, as it is with the hosted service, which clients
// try again by themselves. After something was done that would do it twice.
func (s *server) final(ctx context.Context, p berth.ProjectID, id berth.ResponseID, answer func(json.RawMessage) error) error {
	var failure berth.Event
	for ev, err := range s.Journal.Follow(ctx, p, id, -1) {
		if err != nil {
			return followError(ctx, id, err)
		}
		if ev.Type == berth.EventErrored {
			if err := json.Unmarshal(ev.Data, &failure); err != nil {
				return err
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
				return err
			}
			if !slices.ContainsFunc(body.Output, isDeed) {
				return failed(failure.Error)
			}
		}
		return answer(object)
	}
	return errors.New("the journal of " + string(id) + " has no end")
}

// isDeed reports whether an item is more than words.
func isDeed(it berth.Item) bool {
	return it.Type() != berth.ItemMessage && it.Type() != berth.ItemReasoning
}

// failed returns the error of a response that has failed.
func failed(e *berth.EventError) error {
	code := berth.CodeUpstream
	switch {
	case e.Code == "model_not_found":
		code = berth.CodeNotFound
	case e.Type == typeInvalid:
		code = berth.CodeInvalid
	case e.Type == typeRateLimit:
		code = berth.CodeRateLimited
	}
	err := &berth.Error{Code: code, Wire: e.Code, Message: e.Message}
	if e.Param != nil {
		err.Param = *e.Param
	}
	return err
}

// followError words the end of a Follow that came before the response's.
func followError(ctx context.Context, id berth.ResponseID, err error) error {
	if ctx.Err() != nil {
		return &berth.Error{Code: berth.CodeUnavailable, Err: err,
			Message: "The server is stopping. Ask for response '" + string(id) + "' again in a moment."}
	}
	if errors.Is(err, store.ErrNotFound) {
		return responseNotFound(id)
	}
	return err
}

// getResponse serves GET /v1/responses/{response}: the object as it is now, or
// with stream=true its events from after starting_after on, however long ago.
func (s *server) getResponse(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	q := newQuery(r)
	q.list("include", includable)
	stream := q.boolean("stream", streamInBody(r))
	after := q.integer("starting_after", -1, -1, 1<<53)
	obfuscate := q.boolean("include_obfuscation", true)
	if err := q.end(); err != nil {
		return err
	}
	if !stream && r.URL.Query().Has("starting_after") {
		return berth.Invalid("starting_after", "The 'starting_after' parameter is only allowed when 'stream' is enabled.")
	}
	id := berth.ResponseID(r.PathValue("response"))
	state, err := s.Responses.ResponseState(r.Context(), c.Project, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && !state.Stored {
		return responseNotFound(id)
	}
	if err != nil {
		return err
	}
	if stream {
		return s.stream(w, r, c.Project, id, after, obfuscate)
	}
	pieces, err := s.Responses.ReadResponse(r.Context(), c.Project, id)
	if errors.Is(err, store.ErrNotFound) {
		return responseNotFound(id)
	}
	if err != nil {
		return err
	}
	writePieces(w, http.StatusOK, pieces...)
	return nil
}

// streamInBody reports whether a GET asks for a stream in a body of its own, as
// OpenAI's Go client does in place of the query.
func streamInBody(r *http.Request) bool {
	var body struct{ Stream bool }
	return isJSON(r) && json.NewDecoder(io.LimitReader(r.Body, 4<<10)).Decode(&body) == nil && body.Stream
}

// response returns the response that the path names. One that is not stored
// exists for the request that made it only.
func (s *server) response(r *http.Request, c berth.Caller) (*store.Response, error) {
	id := berth.ResponseID(r.PathValue("response"))
	rec, err := s.Responses.GetResponse(r.Context(), c.Project, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && !rec.Body.Store {
		return nil, responseNotFound(id)
	}
	return rec, err
}

func responseNotFound(id berth.ResponseID) error {
	return berth.Errorf(berth.CodeNotFound, "Response with id '%s' not found.", clip(string(id)))
}

// cancelResponse serves POST /v1/responses/{response}/cancel.
func (s *server) cancelResponse(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	rec, err := s.response(r, c)
	if err != nil {
		return err
	}
	if rec.Body.Status.Final() && !rec.Body.Background {
		return berth.Errorf(berth.CodeInvalid, "Cannot cancel a synchronous response.")
	}
	body, err := s.Engine.Cancel(r.Context(), c, berth.ResponseID(r.PathValue("response")))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, body)
}

// deleteResponse serves DELETE /v1/responses/{response}.
func (s *server) deleteResponse(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	id := berth.ResponseID(r.PathValue("response"))
	if err := s.Engine.Delete(r.Context(), c, id); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, deleted(id, "response"))
}

// listInputItems serves GET /v1/responses/{response}/input_items: what this
// request added to its chain, in the full form of normalize.
func (s *server) listInputItems(w http.ResponseWriter, r *http.Request, c berth.Caller) error {
	q := newQuery(r)
	q.list("include", includable)
	page := q.page(20, 100)
	if err := q.end(); err != nil {
		return err
	}
	rec, err := s.response(r, c)
	if err != nil {
		return err
	}
	items, more, err := pageOf(rec.Input, page, berth.Item.ID)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, listOf(items, more, berth.Item.ID))
}

// pageOf returns one page of all, which is sorted from the oldest to the newest,
// and whether there is more.
func pageOf[T any](all []T, page store.Page, id func(T) string) ([]T, bool, error) {
	all = slices.Clone(all)
	if !page.Ascending {
		slices.Reverse(all)
	}
	if page.After != "" {
		n := slices.IndexFunc(all, func(v T) bool { return id(v) == page.After })
		if n < 0 {
			return nil, false, afterNotFound(page.After)
		}
		all = all[n+1:]
	}
	if len(all) > page.Limit {
		return all[:page.Limit], true, nil
	}
	return all, false, nil
}
