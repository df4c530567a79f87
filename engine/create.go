package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/cluster"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/store"
)

// Create checks a request, stores its response and starts its run. It returns the response
// as created; its events follow in the journal.
//
// The end of ctx cancels a foreground response. A background response outlives ctx. A
// response that is not to be stored is deleted when its run and ctx have both ended.
//
// If the caller names the response and it exists, Create returns it as it was created. Its
// run then ends with the last of its callers (client.go).
func (e *Engine) Create(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest,
	options ...Option) (*berth.Response, error) {
	if caller.Response == "" {
		return e.create(ctx, caller, req, options)
	}
	options = append([]Option{As(caller.Response)}, options...)
	created, err := e.existing(ctx, caller)
	if errors.Is(err, store.ErrNotFound) {
		created, err = e.create(ctx, caller, req, options)
	}
	switch {
	case errors.Is(err, store.ErrExists): // a concurrent request has created it
		created, err = e.existing(ctx, caller)
	case errors.Is(err, transcript.ErrLocked): // perhaps by a concurrent request for the same response
		if named, missing := e.existing(ctx, caller); missing == nil {
			return named, nil
		}
	}
	return created, err
}

func (e *Engine) create(ctx context.Context, caller berth.Caller, req *berth.ResponseRequest,
	options []Option) (_ *berth.Response, err error) {
	if req, err = e.mayStore(ctx, caller.Project, req); err != nil {
		return nil, err
	}
	if req.Stored() {
		if err := e.Room(); err != nil {
			return nil, err
		}
	}
	if e.EndUsers != nil {
		if caller, err = e.EndUsers.FromRequest(ctx, caller, req); err != nil {
			return nil, err
		}
	}
	booked, err := e.book(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	defer func() {
		if _, forwarded := errors.AsType[*cluster.ElsewhereError](err); forwarded {
			booked(-1)
		} else if err != nil {
			booked(0)
		}
	}()
	if req, err = e.completeTools(ctx, caller, req); err != nil {
		return nil, err
	}
	a := &admission{engine: e, caller: caller, req: req, run: &run{engine: e}}
	defer func() {
		if err != nil {
			a.run.reservations.release(e, caller.Project)
		}
	}()
	r, err := a.prepareRun(ctx, options)
	if err != nil {
		return nil, err
	}
	r.booked = booked
	r.record.Key, r.record.RequestID = caller.Key, caller.RequestID
	body := r.record.Body
	if e.Answered != nil && body.Berth != nil && len(body.Berth.Approvals) > 0 {
		if err := e.Answered(ctx, caller, body.ID, body.Berth.Approvals); err != nil {
			return nil, fmt.Errorf("record approvals: %w", err)
		}
	}
	created := *body
	first := []berth.Event{{Type: berth.EventCreated, Response: &created}}
	if req.Background {
		created.Status = berth.StatusQueued
		first = append(first, berth.Event{Type: berth.EventQueued, Response: &created})
	}
	first = append(first, berth.Event{Type: berth.EventInProgress, Response: body})
	if r.options.prepared {
		first = append(first, r.final(*body, berth.StatusCompleted, ""))
	}
	also := r.transcript.Chain.Hold(r.record)
	if caller.Subject != nil && req.Stored() { // else it is deleted when it ends
		also = append(also, store.EndUserLink(caller.Subject.EndUser, string(r.id()), body.CreatedAt))
	}
	release, err := e.live.claim(ctx, r.id()) // so that no sweep resumes it before it starts
	if err != nil {
		return nil, err
	}
	defer release()
	r.writer, err = e.Journal.Create(ctx, r.record, e.lease(), first, also...)
	if err != nil {
		return nil, e.createError(ctx, r, err)
	}
	r.trace(ctx)
	if !req.Stored() {
		e.live.await(r.id(), 1) // in the background: until it is deleted, or this process ends
		r.options.unstored.Expect(r.key())
	}
	if !req.Background {
		r.clients = &clients{run: r}
	}
	if !req.Background && caller.Response != "" {
		r.clients.patience = e.Limits.Return
	}
	e.start(r)
	r.clients.join(ctx)
	return &created, nil
}

// Cancel cancels the run of a response and returns the ended response. It returns a
// response that has ended already unchanged. If the end cannot be stored, the error is
// berth.CodeUnavailable, and the run ends as cancelled later.
func (e *Engine) Cancel(ctx context.Context, caller berth.Caller, id berth.ResponseID) (*berth.Response, error) {
	rec, err := e.stored(ctx, caller.Project, id)
	if err != nil {
		return nil, err
	}
	if err := e.stop(ctx, rec, errCancelled); err != nil {
		return nil, err
	}
	rec, err = e.stored(ctx, caller.Project, rec.Body.ID)
	if err != nil {
		return nil, err
	}
	if !rec.Body.Status.Final() {
		return nil, notCancelled(id, nil)
	}
	return rec.Body, nil
}

// Delete cancels the run of a response, if it still runs, and deletes the response.
func (e *Engine) Delete(ctx context.Context, caller berth.Caller, id berth.ResponseID) error {
	rec, err := e.stored(ctx, caller.Project, id)
	if err != nil {
		return err
	}
	if e.Held != nil && rec.Body.Store {
		if err := e.Held(ctx, caller.Project, string(id)); err != nil {
			return err
		}
	}
	err = e.stop(ctx, rec, errCancelled)
	if _, elsewhere := errors.AsType[*cluster.ElsewhereError](err); elsewhere || ctx.Err() != nil {
		return err
	}
	if err != nil {
		e.Log.Warn("failed to cancel response before its deletion", "response", id, "err", err)
	}
	defer e.transcripts.Clear() // a later response must not find its items in the cache
	if err := e.Responses.DeleteResponse(ctx, caller.Project, id); errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Response", id)
	} else if err != nil {
		return err
	}
	if !rec.Body.Store {
		e.live.forget(id)
	}
	return nil
}

// stored returns a response that the project may see: one that is stored, or runs in the background.
func (e *Engine) stored(ctx context.Context, p berth.ProjectID, id berth.ResponseID) (*store.Response, error) {
	rec, err := e.Responses.GetResponse(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) || (err == nil && !rec.Body.Visible()) {
		return nil, berth.NotFound("Response", id)
	}
	return rec, err
}

// stop ends the run of a response and waits for its last event. If no server holds the
// run, stop resumes it to end it.
func (e *Engine) stop(ctx context.Context, rec *store.Response, cause error) error {
	id := rec.Body.ID
	r := e.live.get(id)
	if r == nil && rec.Body.Status.Final() {
		return nil
	}
	if r == nil {
		if err := e.resume(ctx, store.RunRef{Project: rec.Project, Response: id}, cause); err != nil {
			return notCancelled(id, err)
		}
		if r = e.live.get(id); r == nil {
			return e.heldElsewhere(ctx, rec.Project, id)
		}
	}
	r.cancel(cause)
	failed := make(chan struct{})
	for hurry := r.outage.hurry; ; hurry = nil {
		select {
		case <-r.ended:
			return nil
		case hurry <- failed:
		case <-failed:
			return notCancelled(id, nil)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func notCancelled(id berth.ResponseID, err error) error {
	return &berth.Error{Code: berth.CodeUnavailable, Err: err, RetryAfter: time.Second,
		Message: "Response '" + string(id) +
			"' cannot be cancelled at the moment, because the server cannot store its end. Try again later."}
}

// createError returns an error of Journal.Create as the client sees it. A response in a
// conversation is created together with its hold.
func (e *Engine) createError(ctx context.Context, r *run, err error) error {
	switch conv := r.transcript.Chain.Conversation(); {
	case conv == "":
	case errors.Is(err, store.ErrNotFound):
		return transcript.ConversationNotFound(conv)
	case errors.Is(err, store.ErrExists):
		if _, missing := e.Responses.GetResponse(ctx, r.record.Project, r.id()); errors.Is(missing, store.ErrNotFound) {
			return transcript.ErrLocked
		}
	}
	return err
}
