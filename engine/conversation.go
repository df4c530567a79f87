package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/store"
)

// refused words an error of saving a response with its hold.
func (e *Engine) refused(ctx context.Context, r *run, err error) error {
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

// leaveToConversation returns the items that a response leaves to its conversation
// when it ends: none if it has failed or was cancelled.
func leaveToConversation(r *store.Response, final *berth.Response) []*store.Object {
	if final.Conversation == nil || final.Status != berth.StatusCompleted && final.Status != berth.StatusIncomplete {
		return nil
	}
	items := slices.Concat(r.Input, final.Output)
	items = slices.DeleteFunc(items, func(it berth.Item) bool { return it.Type() == berth.ItemCompactionTrigger })
	return transcript.ConversationItems(final.Conversation.ID, items)
}

// ConversationItems returns new items of a conversation as they are stored.
func ConversationItems(id berth.ConversationID, items []berth.Item) []*store.Object {
	return transcript.ConversationItems(id, items)
}

// ConversationItemKey names an item of a conversation in the store.
func ConversationItemKey(id berth.ConversationID, item string) store.ObjectKey {
	return transcript.ConversationItemKey(id, item)
}

// DeleteConversation removes a conversation and all that it holds. Responses that
// were made in it stay; one that is under way leaves nothing.
func (e *Engine) DeleteConversation(ctx context.Context, caller berth.Caller, id berth.ConversationID) error {
	return e.forget(ctx, caller, store.ObjectKey{Kind: store.KindConversation, ID: string(id)})
}

// DeleteConversationItem removes an item from a conversation. It is
// store.ErrNotFound if it is not there.
func (e *Engine) DeleteConversationItem(ctx context.Context, caller berth.Caller, id berth.ConversationID, item string) error {
	return e.forget(ctx, caller, transcript.ConversationItemKey(id, item))
}

// forget deletes an object; responses to come must not find it remembered.
func (e *Engine) forget(ctx context.Context, caller berth.Caller, key store.ObjectKey) error {
	defer e.transcripts.Clear()
	return e.Objects.DeleteObject(ctx, caller.Project, key)
}
