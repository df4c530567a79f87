package transcript

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

// A Chain is the context before a response's own input.
type Chain struct {
	Items     []berth.Item
	Container berth.ContainerID // the last used one, or empty
	Origin    model.Origin      // the provider of its last turn, or zero
	Held      bool              // a response holds its conversation

	conversation berth.ConversationID // empty if the items are not a conversation's
	holds        int                  // number of the conversation's last hold
	age          int                  // of the cache when it was read
}

// Conversation returns the conversation of the chain, or "".
func (c *Chain) Conversation() berth.ConversationID { return c.conversation }

// Stored returns the chain of a stored response.
func (s *Service) Stored(ctx context.Context, rec *store.Response) (Chain, error) {
	return sourceOfStored(rec).read(ctx, s, rec.Project)
}

// A source is the origin of a chain: a response, a conversation, or nothing.
type source interface {
	// read returns the chain as it is stored now. The caller must not change its items.
	// Errors are for the client.
	read(ctx context.Context, svc *Service, p berth.ProjectID) (Chain, error)
}

// sourceOf returns the source that a request for a response names.
func sourceOf(previous berth.ResponseID, c *berth.ResponseConversation) source {
	switch {
	case c != nil:
		return conversation{id: c.ID}
	case previous != "":
		return previousResponse(previous)
	}
	return emptySource{}
}

// sourceOfStored returns the source of a stored response.
func sourceOfStored(rec *store.Response) source {
	switch body := rec.Body; {
	case body.Conversation != nil:
		return conversation{body.Conversation.ID, rec}
	case body.PreviousResponseID != nil:
		return previousResponse(*body.PreviousResponseID)
	}
	return emptySource{}
}

// emptySource is the source of the first response of a chain.
type emptySource struct{}

func (emptySource) read(_ context.Context, svc *Service, _ berth.ProjectID) (Chain, error) {
	return Chain{age: svc.cache.now()}, nil
}

// A previousResponse is a source of a stored response and of those that it continues.
type previousResponse berth.ResponseID

func (s previousResponse) read(ctx context.Context, svc *Service, p berth.ProjectID) (Chain, error) {
	id := berth.ResponseID(s)
	key := Key{p, string(id)}
	c, age, cached := svc.cache.get(key)
	c.age = age
	rec, err := svc.Responses.GetResponse(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && !rec.Body.Store {
		return c, PreviousNotFound(id)
	}
	if err != nil {
		return c, err
	}
	if !rec.Body.Status.Final() {
		return c, &berth.Error{Code: berth.CodeInvalid, Param: "previous_response_id",
			Wire:    "previous_response_not_completed",
			Message: fmt.Sprintf("Previous response with id '%s' is still in progress.", id)}
	}
	if cached {
		return c, nil
	}
	c.Origin = OriginOf(rec.Body)
	links, err := svc.Responses.Chain(ctx, p, id)
	if errors.Is(err, store.ErrNotFound) {
		return c, PreviousNotFound(id)
	}
	if err != nil {
		return c, err
	}
	if err := c.readBefore(ctx, svc, p, links[0].ID); err != nil {
		return c, err
	}
	for _, l := range links {
		c.Items = sinceCompaction(append(c.Items, l.Input...), l.Output)
		if l.Container != "" {
			c.Container = l.Container
		}
	}
	svc.cache.put(key, c, age)
	return c, nil
}

// readBefore reads the items before the first response of the chain, which may belong to a
// conversation. There are none if that conversation was deleted.
func (c *Chain) readBefore(ctx context.Context, svc *Service, p berth.ProjectID, first berth.ResponseID) error {
	rec, err := svc.Responses.GetResponse(ctx, p, first)
	if errors.Is(err, store.ErrNotFound) || err == nil && rec.Body.Conversation == nil {
		return nil
	}
	if err != nil {
		return err
	}
	before, err := sourceOfStored(rec).read(ctx, svc, p)
	if berth.ErrorCode(err) == berth.CodeNotFound {
		return nil
	}
	c.Items, c.Container = before.Items, before.Container
	return err
}

// OriginOf returns the provider of the last turn of a response, or zero if unknown.
func OriginOf(body *berth.Response) model.Origin {
	if body.Berth == nil || len(body.Berth.Usage) == 0 {
		return model.Origin{}
	}
	last := body.Berth.Usage[len(body.Berth.Usage)-1]
	return model.Origin{Upstream: last.Upstream, Model: last.Model}
}

// PreviousNotFound returns the error for the client for a previous response that does not exist.
func PreviousNotFound(id berth.ResponseID) error {
	return &berth.Error{Code: berth.CodeInvalid, Param: "previous_response_id", Wire: "previous_response_not_found",
		Message: fmt.Sprintf("Previous response with id '%s' not found.", id)}
}
