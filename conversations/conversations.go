// Package conversations stores conversations with their items. Responses add items through package engine.
package conversations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// A Store stores conversations. It is safe for concurrent use.
type Store struct {
	engine  *engine.Engine
	objects store.Objects
}

// New returns a store of the conversations of an engine.
func New(e *engine.Engine, objects store.Objects) *Store { return &Store{e, objects} }

func keyOf(id berth.ConversationID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindConversation, ID: string(id)}
}

// clientError returns the client's error for a conversation that does not exist.
func clientError(id berth.ConversationID, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Conversation", rule.Clip(string(id)))
	}
	return err
}

// itemError returns the client's error for an item that does not exist.
func itemError(item string, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return berth.Errorf(berth.CodeNotFound, "Item with id '%s' not found in conversation.", rule.Clip(item))
	}
	return err
}

// Create stores a conversation and its first items.
func (s *Store) Create(ctx context.Context, p berth.ProjectID, conv *berth.Conversation, items []berth.Item) error {
	raw, err := json.Marshal(conv)
	if err != nil {
		return fmt.Errorf("encode conversation: %w", err)
	}
	o := &store.Object{ObjectKey: keyOf(conv.ID), CreatedAt: conv.CreatedAt, Body: raw}
	objects := append([]*store.Object{o}, engine.ConversationItems(conv.ID, items)...)
	if err := s.objects.CreateObjects(ctx, p, objects...); err != nil {
		return fmt.Errorf("store conversation: %w", err)
	}
	return nil
}

// List returns a page of conversations, and whether there are more.
func (s *Store) List(ctx context.Context, p berth.ProjectID, page berth.Page) ([]*berth.Conversation, bool, error) {
	objects, more, err := s.objects.ListObjects(ctx, p, store.KindConversation, "", page)
	if err != nil {
		return nil, false, fmt.Errorf("list conversations: %w", err)
	}
	list := make([]*berth.Conversation, len(objects))
	for i, o := range objects {
		if list[i], err = decode(o); err != nil {
			return nil, false, err
		}
	}
	return list, more, nil
}

func decode(o *store.Object) (*berth.Conversation, error) {
	var conv berth.Conversation
	if err := json.Unmarshal(o.Body, &conv); err != nil {
		return nil, fmt.Errorf("decode conversation: %w", err)
	}
	return &conv, nil
}

// Get returns a conversation.
func (s *Store) Get(ctx context.Context, p berth.ProjectID, id berth.ConversationID) (*berth.Conversation, error) {
	o, err := s.objects.GetObject(ctx, p, keyOf(id))
	if err != nil {
		return nil, clientError(id, err)
	}
	return decode(o)
}

// SetMetadata replaces the metadata of a conversation.
func (s *Store) SetMetadata(ctx context.Context, p berth.ProjectID, id berth.ConversationID,
	metadata map[string]string) (conv *berth.Conversation, err error) {
	_, err = s.objects.UpdateObject(ctx, p, keyOf(id), func(o *store.Object) error {
		if conv, err = decode(o); err != nil {
			return err
		}
		conv.Metadata = metadata
		o.Body, err = json.Marshal(conv)
		return err
	})
	return conv, clientError(id, err)
}

// Delete deletes a conversation with its items, but not the responses that were created in it.
func (s *Store) Delete(ctx context.Context, c berth.Caller, id berth.ConversationID) error {
	return clientError(id, s.engine.DeleteConversation(ctx, c, id))
}

// Add adds items to a conversation, whose ids must be new in it.
func (s *Store) Add(ctx context.Context, p berth.ProjectID, id berth.ConversationID, items []berth.Item) error {
	err := s.objects.CreateObjects(ctx, p, engine.ConversationItems(id, items)...)
	switch {
	case errors.Is(err, store.ErrExists):
		return s.duplicate(ctx, p, id, items)
	case err == nil && len(items) == 0:
		_, err = s.Get(ctx, p, id)
	}
	return clientError(id, err)
}

// duplicate returns an error that names the first item that the conversation already contains.
func (s *Store) duplicate(ctx context.Context, p berth.ProjectID, id berth.ConversationID, items []berth.Item) error {
	for _, it := range items {
		_, err := s.objects.GetObject(ctx, p, engine.ConversationItemKey(id, it.ID()))
		if !errors.Is(err, store.ErrNotFound) {
			return errors.Join(err, Duplicate(it.ID()))
		}
	}
	return berth.Errorf(berth.CodeConflict, "Another request is changing the conversation. Try again.")
}

// Duplicate returns the client's error for an item that a conversation already contains.
func Duplicate(item string) error {
	return berth.Invalid("items",
		"Duplicate item found with id %s. Remove duplicate items from your input and try again.", rule.Clip(item))
}

// Items returns a page of the items of a conversation, which must exist, and whether there are more.
func (s *Store) Items(ctx context.Context, p berth.ProjectID, id berth.ConversationID,
	page berth.Page) ([]berth.Item, bool, error) {
	objects, more, err := s.objects.ListObjects(ctx, p, store.KindConversationItem, string(id), page)
	if err != nil {
		return nil, false, fmt.Errorf("list items: %w", err)
	}
	items := make([]berth.Item, len(objects))
	for i, o := range objects {
		if err := items[i].UnmarshalJSON(o.Body); err != nil {
			return nil, false, fmt.Errorf("decode item: %w", err)
		}
	}
	return items, more, nil
}

// Item returns the JSON of an item of a conversation.
func (s *Store) Item(ctx context.Context, p berth.ProjectID, id berth.ConversationID, item string) (json.RawMessage,
	error) {
	o, err := s.objects.GetObject(ctx, p, engine.ConversationItemKey(id, item))
	if err != nil {
		return nil, itemError(item, err)
	}
	return o.Body, nil
}

// DeleteItem deletes an item of a conversation.
func (s *Store) DeleteItem(ctx context.Context, c berth.Caller, id berth.ConversationID, item string) error {
	return itemError(item, s.engine.DeleteConversationItem(ctx, c, id, item))
}
