package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

// A chain is what comes before a response's own input.
type chain struct {
	items     []berth.Item
	container berth.ContainerID // the last one that was used
	origin    model.Origin      // who answered its last turn, as far as is known
	age       int               // of the engine's history when it was read

	conversation berth.ConversationID // empty if the items are not a conversation's
	holds        int                  // that the conversation has seen
	held         bool                 // a response holds it now
}

// A source is where a chain comes from.
type source interface {
	// read returns the chain as it is stored now. Its items must not be changed.
	// Errors are for the client.
	read(ctx context.Context, e *Engine, p berth.ProjectID) (chain, error)
}

// sourceOf returns the source that a request for a response names.
func sourceOf(previous berth.ResponseID, c *berth.ResponseConversation) source {
	switch {
	case c != nil:
		return conversation{id: c.ID}
	case previous != "":
		return previousResponse(previous)
	}
	return nothing{}
}

// sourceOfStored returns the source of a response that was made before.
func sourceOfStored(rec *store.Response) source {
	switch body := rec.Body; {
	case body.Conversation != nil:
		return conversation{body.Conversation.ID, rec}
	case body.PreviousResponseID != nil:
		return previousResponse(*body.PreviousResponseID)
	}
	return nothing{}
}

// nothing is the source of a response that begins a chain.
type nothing struct{}

func (nothing) read(_ context.Context, e *Engine, _ berth.ProjectID) (chain, error) {
	return chain{age: e.past.now()}, nil
}

// previousResponse is a source: a stored response and those that it continues.
type previousResponse berth.ResponseID

func (s previousResponse) read(ctx context.Context, e *Engine, p berth.ProjectID) (chain, error) {
	id := berth.ResponseID(s)
	key := historyKey{p, string(id)}
	c, age, remembered := e.past.get(key)
	c.age = age
	rec, err := e.Responses.GetResponse(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && !rec.Body.Store {
		return c, previousNotFound(id)
	}
	if err != nil {
		return c, err
	}
	if !rec.Body.Status.Final() {
		return c, &berth.Error{Code: berth.CodeInvalid, Param: "previous_response_id", Wire: "previous_response_not_completed",
			Message: fmt.Sprintf("Previous response with id '%s' is still in progress.", id)}
	}
	if remembered {
		return c, nil
	}
	c.origin = originOf(rec.Body)
	links, err := e.Responses.Chain(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return c, previousNotFound(id)
	}
	if err != nil {
		return c, err
	}
	if err := c.begin(ctx, e, p, links[0].ID); err != nil {
		return c, err
	}
	for _, l := range links {
		c.items = sinceCompaction(append(c.items, l.Input...), l.Output)
		if l.Container != "" {
			c.container = l.Container
		}
	}
	e.past.put(key, c, age)
	return c, nil
}

// begin adds what came before the first response of the chain, which may have
// been made in a conversation. Of one that was deleted nothing is left.
func (c *chain) begin(ctx context.Context, e *Engine, p berth.ProjectID, first berth.ResponseID) error {
	rec, err := e.Responses.GetResponse(ctx, p, first)
	if errors.Is(err, store.ErrNotFound) || err == nil && rec.Body.Conversation == nil {
		return nil
	}
	if err != nil {
		return err
	}
	before, err := sourceOfStored(rec).read(ctx, e, p)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return nil
	}
	c.items, c.container = before.items, before.container
	return err
}

// originOf returns who answered the last turn of a response, as far as it tells.
func originOf(body *berth.Response) model.Origin {
	if body.Berth == nil || len(body.Berth.Usage) == 0 {
		return model.Origin{}
	}
	last := body.Berth.Usage[len(body.Berth.Usage)-1]
	return model.Origin{Upstream: last.Upstream, Model: last.Model}
}

func previousNotFound(id berth.ResponseID) error {
	return &berth.Error{Code: berth.CodeInvalid, Param: "previous_response_id", Wire: "previous_response_not_found",
		Message: fmt.Sprintf("Previous response with id '%s' not found.", id)}
}
