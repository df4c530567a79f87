package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A hold says that a response writes a conversation. Holds are objects of the
// conversation, numbered from 1. Each is saved in one transaction with its
// response, whose end is the end of the hold, so two responses cannot take the
// same number, a hold needs no release, and a crash leaves none behind.
type hold struct {
	Response  berth.ResponseID  `json:"response"`
	Container berth.ContainerID `json:"container,omitempty"` // the last one used up to here
}

// conversation is a source: what a conversation holds, all of it or what was there
// when a response was made.
type conversation struct {
	id   berth.ConversationID
	made *store.Response // nil for one that is to be made
}

func (s conversation) read(ctx context.Context, e *Engine, p berth.ProjectID) (chain, error) {
	c := chain{conversation: s.id}
	_, err := e.Objects.GetObject(ctx, p, store.ObjectKey{Kind: store.KindConversation, ID: string(s.id)})
	if errors.Is(err, store.ErrNotFound) {
		return c, conversationNotFound(s.id)
	}
	if err != nil {
		return c, err
	}
	// The hold is read before the items: what its response left is among them, or
	// it is held.
	if err := s.holder(ctx, e, p, &c); err != nil {
		return c, err
	}
	if s.made != nil {
		err = s.readUntil(ctx, e, p, &c)
	} else {
		err = s.readOn(ctx, e, p, &c)
	}
	return c, err
}

// holder reads the last hold.
func (s conversation) holder(ctx context.Context, e *Engine, p berth.ProjectID, c *chain) error {
	last, _, err := e.Objects.ListObjects(ctx, p, store.KindConversationHold, string(s.id), store.Page{Limit: 1})
	if err != nil || len(last) == 0 {
		return err
	}
	if c.holds, err = strconv.Atoi(last[0].ID); err != nil {
		return err
	}
	var h hold
	if err := json.Unmarshal(last[0].Body, &h); err != nil {
		return err
	}
	c.container = h.Container
	rec, err := e.Responses.GetResponse(ctx, p, h.Response)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	c.held, c.origin = !rec.Body.Status.Final(), originOf(rec.Body)
	return nil
}

// readOn reads the items that are not remembered.
func (s conversation) readOn(ctx context.Context, e *Engine, p berth.ProjectID, c *chain) error {
	key := historyKey{p, string(s.id)}
	known, age, _ := e.past.get(key)
	var after string
	if n := len(known.items); n > 0 {
		after = known.items[n-1].ID()
	}
	objects, err := s.objects(ctx, e, p, after)
	if after != "" && errors.Is(err, store.ErrNotFound) { // deleted, and not by this server
		known.items = nil
		objects, err = s.objects(ctx, e, p, "")
	}
	if err != nil {
		return err
	}
	fresh, err := itemsOf(objects)
	if err != nil {
		return err
	}
	c.age, c.items = age, known.items
	if len(fresh) > 0 {
		c.items = slices.Concat(known.items, fresh)
		e.past.put(key, chain{items: c.items}, age)
	}
	return nil
}

// readUntil reads the items that were there when the response was made.
func (s conversation) readUntil(ctx context.Context, e *Engine, p berth.ProjectID, c *chain) error {
	c.age = e.past.now()
	objects, err := s.objects(ctx, e, p, "")
	if err != nil {
		return err
	}
	own := map[string]bool{}
	for _, it := range slices.Concat(s.made.Input, s.made.Body.Output) {
		own[it.ID()] = true
	}
	later := func(o *store.Object) bool { return o.CreatedAt > s.made.Body.CreatedAt || own[o.ID] }
	if n := slices.IndexFunc(objects, later); n >= 0 {
		objects = objects[:n]
	}
	c.items, err = itemsOf(objects)
	return err
}

// objects returns the items after the one with an id, the oldest first.
func (s conversation) objects(ctx context.Context, e *Engine, p berth.ProjectID, after string) ([]*store.Object, error) {
	page := store.Page{Limit: 10_000, After: after, Ascending: true}
	var all []*store.Object
	for {
		objects, more, err := e.Objects.ListObjects(ctx, p, store.KindConversationItem, string(s.id), page)
		all = append(all, objects...)
		if err != nil || !more {
			return all, err
		}
		page.After = objects[len(objects)-1].ID
	}
}

func itemsOf(objects []*store.Object) ([]berth.Item, error) {
	items := make([]berth.Item, len(objects))
	for i, o := range objects {
		if err := items[i].UnmarshalJSON(o.Body); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// hold returns what is to be saved with a new response so that no other can write
// its conversation.
func (c chain) hold(rec *store.Response) []*store.Object {
	if c.conversation == "" {
		return nil
	}
	h := hold{Response: rec.Body.ID, Container: rec.Container}
	if h.Container == "" {
		h.Container = c.container
	}
	body, _ := json.Marshal(h) // strings always marshal
	return []*store.Object{{CreatedAt: rec.Body.CreatedAt, Body: body,
		ObjectKey: store.ObjectKey{Kind: store.KindConversationHold, Parent: string(c.conversation), ID: strconv.Itoa(c.holds + 1)}}}
}

// refused words an error of saving a response with its hold.
func (e *Engine) refused(ctx context.Context, r *run, err error) error {
	switch conv := r.chain.conversation; {
	case conv == "":
	case errors.Is(err, store.ErrNotFound):
		return conversationNotFound(conv)
	case errors.Is(err, store.ErrExists):
		if _, missing := e.Responses.GetResponse(ctx, r.record.Project, r.id()); errors.Is(missing, store.ErrNotFound) {
			return errLocked
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
	return ConversationItems(final.Conversation.ID, items)
}

// CheckItems refuses items that no model could be shown, of a file that is not
// there for example, and that would end every response after them.
func (e *Engine) CheckItems(ctx context.Context, caller berth.Caller, items []berth.Item) error {
	_, err := e.lower(ctx, caller.Project, items)
	return err
}

// ConversationItems returns new items of a conversation as they are stored.
func ConversationItems(id berth.ConversationID, items []berth.Item) []*store.Object {
	now := time.Now().Unix()
	objects := make([]*store.Object, len(items))
	for i, it := range items {
		objects[i] = &store.Object{ObjectKey: ConversationItemKey(id, it.ID()), CreatedAt: now, Body: it.Raw()}
	}
	return objects
}

// ConversationItemKey names an item of a conversation in the store.
func ConversationItemKey(id berth.ConversationID, item string) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindConversationItem, Parent: string(id), ID: item}
}

// DeleteConversation removes a conversation and all that it holds. Responses that
// were made in it stay; one that is under way leaves nothing.
func (e *Engine) DeleteConversation(ctx context.Context, caller berth.Caller, id berth.ConversationID) error {
	return e.forget(ctx, caller, store.ObjectKey{Kind: store.KindConversation, ID: string(id)})
}

// DeleteConversationItem removes an item from a conversation. It is
// store.ErrNotFound if it is not there.
func (e *Engine) DeleteConversationItem(ctx context.Context, caller berth.Caller, id berth.ConversationID, item string) error {
	return e.forget(ctx, caller, ConversationItemKey(id, item))
}

// forget deletes an object; responses to come must not find it remembered.
func (e *Engine) forget(ctx context.Context, caller berth.Caller, key store.ObjectKey) error {
	defer e.past.clear()
	return e.Objects.DeleteObject(ctx, caller.Project, key)
}

func conversationNotFound(id berth.ConversationID) error {
	return berth.Errorf(berth.CodeNotFound, "Conversation with id '%s' not found.", id)
}

var errLocked = &berth.Error{Code: berth.CodeConflict, Param: "conversation", Wire: "conversation_locked",
	Message: "Another process is currently operating on this conversation. Please retry in a few seconds."}
