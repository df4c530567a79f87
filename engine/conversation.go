package engine

import (
	"context"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine/transcript"
	"github.com/berth-run/berth/store"
)

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
func (e *Engine) DeleteConversationItem(ctx context.Context, caller berth.Caller, id berth.ConversationID,
	item string) error {
	return e.forget(ctx, caller, transcript.ConversationItemKey(id, item))
}

// forget deletes an object and empties the cache, where later responses would find it.
func (e *Engine) forget(ctx context.Context, caller berth.Caller, key store.ObjectKey) error {
	defer e.transcripts.Clear()
	return e.Objects.DeleteObject(ctx, caller.Project, key)
}
