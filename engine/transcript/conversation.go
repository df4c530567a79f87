package transcript

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// A hold is the exclusive right of a response to write a conversation. Holds are objects
// of the conversation, numbered from 1. Each is stored in one transaction with its
// response, and ends with that response. So two responses cannot have the same number, a
// hold needs no release, and a crash leaves none behind.
type hold struct {
	Response  berth.ResponseID  `json:"response"`
	Container berth.ContainerID `json:"container,omitempty"` // the last one used so far
}

// A conversation is a source of all items of a conversation, or of those that it had when
// a response was created.
type conversation struct {
	id   berth.ConversationID
	made *store.Response // nil for a response that is not created yet
}

func (s conversation) read(ctx context.Context, svc *Service, p berth.ProjectID) (Chain, error) {
	c := Chain{conversation: s.id}
	_, err := svc.Objects.GetObject(ctx, p, store.ObjectKey{Kind: store.KindConversation, ID: string(s.id)})
	if errors.Is(err, store.ErrNotFound) {
		return c, ConversationNotFound(s.id)
	}
	if err != nil {
		return c, err
	}
	// Read the hold before the items: then either the items of its response are complete,
	// or the conversation is held.
	if err := s.holder(ctx, svc, p, &c); err != nil {
		return c, err
	}
	if s.made != nil {
		err = s.readUntil(ctx, svc, p, &c)
	} else {
		err = s.readOn(ctx, svc, p, &c)
	}
	return c, err
}

// holder reads the last hold into c.
func (s conversation) holder(ctx context.Context, svc *Service, p berth.ProjectID, c *Chain) error {
	last, _, err := svc.Objects.ListObjects(ctx, p, store.KindConversationHold, string(s.id), store.Page{Limit: 1})
	if err != nil || len(last) == 0 {
		return err
	}
	if c.holds, err = strconv.Atoi(last[0].ID); err != nil {
		return fmt.Errorf("read number of hold: %w", err)
	}
	var h hold
	if err := json.Unmarshal(last[0].Body, &h); err != nil {
		return fmt.Errorf("decode hold: %w", err)
	}
	c.Container = h.Container
	rec, err := svc.Responses.GetResponse(ctx, p, h.Response)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	c.Held, c.Origin = !rec.Body.Status.Final(), OriginOf(rec.Body)
	return nil
}

// readOn reads all items, the cached ones from the cache.
func (s conversation) readOn(ctx context.Context, svc *Service, p berth.ProjectID, c *Chain) error {
	key := Key{p, string(s.id)}
	known, age, _ := svc.cache.get(key)
	var after string
	if n := len(known.Items); n > 0 {
		after = known.Items[n-1].ID()
	}
	objects, err := s.objects(ctx, svc, p, after)
	if after != "" && errors.Is(err, store.ErrNotFound) { // another server has deleted it
		known.Items = nil
		objects, err = s.objects(ctx, svc, p, "")
	}
	if err != nil {
		return err
	}
	fresh, err := itemsOf(objects)
	if err != nil {
		return err
	}
	c.age, c.Items = age, known.Items
	if len(fresh) > 0 {
		c.Items = slices.Concat(known.Items, fresh)
		svc.cache.put(key, Chain{Items: c.Items}, age)
	}
	return nil
}

// readUntil reads the items that the conversation had when the response was created.
func (s conversation) readUntil(ctx context.Context, svc *Service, p berth.ProjectID, c *Chain) error {
	c.age = svc.cache.now()
	objects, err := s.objects(ctx, svc, p, "")
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
	c.Items, err = itemsOf(objects)
	return err
}

// objects returns the items after the item with an id, the oldest first. An empty id
// returns all.
func (s conversation) objects(ctx context.Context, svc *Service, p berth.ProjectID, after string) ([]*store.Object,
	error) {
	page := store.Page{Limit: 10_000, After: after, Ascending: true}
	var all []*store.Object
	for {
		objects, more, err := svc.Objects.ListObjects(ctx, p, store.KindConversationItem, string(s.id), page)
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

// Hold returns the object that holds the conversation for a new response, to be stored
// with it. It returns none without a conversation.
func (c *Chain) Hold(rec *store.Response) []*store.Object {
	if c.conversation == "" {
		return nil
	}
	h := hold{Response: rec.Body.ID, Container: rec.Container}
	if h.Container == "" {
		h.Container = c.Container
	}
	body, _ := json.Marshal(h) // strings always marshal
	return []*store.Object{{CreatedAt: rec.Body.CreatedAt, Body: body,
		ObjectKey: store.ObjectKey{Kind: store.KindConversationHold, Parent: string(c.conversation),
			ID: strconv.Itoa(c.holds + 1)}}}
}

// ConversationItems returns new items of a conversation as objects of the store.
func ConversationItems(id berth.ConversationID, items []berth.Item) []*store.Object {
	now := time.Now().Unix()
	objects := make([]*store.Object, len(items))
	for i, it := range items {
		objects[i] = &store.Object{ObjectKey: ConversationItemKey(id, it.ID()), CreatedAt: now, Body: it.Raw()}
	}
	return objects
}

// ConversationItemKey returns the key of an item of a conversation in the store.
func ConversationItemKey(id berth.ConversationID, item string) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindConversationItem, Parent: string(id), ID: item}
}

// ConversationNotFound returns the error for a conversation that does not exist.
func ConversationNotFound(id berth.ConversationID) error {
	return berth.NotFound("Conversation", id)
}

// ErrLocked is the error for a conversation that another response holds.
var ErrLocked = &berth.Error{Code: berth.CodeConflict, Param: "conversation", Wire: "conversation_locked",
	Message: "Another process is currently operating on this conversation. Please retry in a few seconds."}
