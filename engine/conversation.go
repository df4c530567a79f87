package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/store"
)

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

// addToConversation returns the items that a response adds to its conversation when it
// ends. A failed or cancelled response adds none.
func addToConversation(r *store.Response, final *berth.Response) []*store.Object {
	if final.Conversation == nil || final.Status != berth.StatusCompleted && final.Status != berth.StatusIncomplete {
		return nil
	}
	items := slices.Concat(r.Input, final.Output)
	items = slices.DeleteFunc(items, func(it berth.Item) bool { return it.Type() == berth.ItemCompactionTrigger })
	return transcript.ConversationItems(final.Conversation.ID, items)
}

// ConversationItems returns new items of a conversation as objects of the store.
func ConversationItems(id berth.ConversationID, items []berth.Item) []*store.Object {
	return transcript.ConversationItems(id, items)
}

// ConversationItemKey returns the key of an item of a conversation in the store.
func ConversationItemKey(id berth.ConversationID, item string) store.ObjectKey {
	return transcript.ConversationItemKey(id, item)
}

// DeleteConversation deletes a conversation and its items. Its responses stay. A response
// in progress adds no items to it.
func (e *Engine) DeleteConversation(ctx context.Context, caller berth.Caller, id berth.ConversationID) error {
	return e.forget(ctx, caller, store.ObjectKey{Kind: store.KindConversation, ID: string(id)})
}

// DeleteConversationItem deletes an item of a conversation. It returns store.ErrNotFound
// if the item does not exist.
func (e *Engine) DeleteConversationItem(ctx context.Context, caller berth.Caller, id berth.ConversationID, item string) error {
	return e.forget(ctx, caller, transcript.ConversationItemKey(id, item))
}

// forget deletes an object and empties the cache, where later responses would find it.
func (e *Engine) forget(ctx context.Context, caller berth.Caller, key store.ObjectKey) error {
	defer e.transcripts.Clear()
	return e.Objects.DeleteObject(ctx, caller.Project, key)
}
