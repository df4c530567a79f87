package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// conversations serves conversations and their items.
type conversations struct {
	engine  *engine.Engine
	rules   *request.Rules
	objects store.Objects
}

// maxNewItems is the maximum number of items of one request.
const maxNewItems = 20

var updateConversationBody = rule.Object(rule.Fields{"metadata": rule.Metadata})

// create serves POST /v1/conversations. The body is optional.
func (h *conversations) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Items    []berth.Item      `json:"items"`
		Metadata map[string]string `json:"metadata"`
	}
	if r.ContentLength != 0 {
		if err := x.Decode(r, rule.Object(rule.Fields{"items": rule.List(h.rules.Item, maxNewItems),
			"metadata": rule.Metadata}), &body); err != nil {
			return err
		}
	}
	if err := h.completeItems(r.Context(), c, body.Items); err != nil {
		return err
	}
	conv := berth.Conversation{ID: berth.ConversationID(berth.NewID(berth.PrefixConversation)), Object: "conversation",
		CreatedAt: time.Now().Unix(), Metadata: body.Metadata}
	if conv.Metadata == nil {
		conv.Metadata = map[string]string{}
	}
	raw, err := json.Marshal(&conv)
	if err != nil {
		return err
	}
	o := &store.Object{ObjectKey: conversationKey(conv.ID), CreatedAt: conv.CreatedAt, Body: raw}
	objects := append([]*store.Object{o}, engine.ConversationItems(conv.ID, body.Items)...)
	if err := h.objects.CreateObjects(r.Context(), c.Project, objects...); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, &conv)
}

// list serves GET /v1/conversations.
func (h *conversations) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	objects, more, err := h.objects.ListObjects(r.Context(), c.Project, store.KindConversation, "", page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	data := make([]*berth.Conversation, len(objects))
	for i, o := range objects {
		data[i] = &berth.Conversation{}
		if err := json.Unmarshal(o.Body, data[i]); err != nil {
			return fmt.Errorf("decode conversation: %w", err)
		}
	}
	return x.JSON(http.StatusOK, exchange.ListOf(data, more, func(c *berth.Conversation) string {
		return string(c.ID)
	}))
}

// get serves GET /v1/conversations/{conversation}.
func (h *conversations) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	conv, err := h.find(r, c)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, conv)
}

// update serves POST /v1/conversations/{conversation}. It replaces the metadata; null
// clears it.
func (h *conversations) update(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var body struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := x.Decode(r, updateConversationBody, &body); err != nil {
		return err
	}
	if body.Metadata == nil {
		return rule.Missing("metadata")
	}
	fresh := map[string]string{}
	if !request.IsNull(body.Metadata) {
		if err := json.Unmarshal(body.Metadata, &fresh); err != nil {
			return fmt.Errorf("decode metadata: %w", err)
		}
	}
	o, err := h.objects.UpdateObject(r.Context(), c.Project, conversationKey(conversationID(r)),
		func(o *store.Object) error {
			var conv berth.Conversation
			err := json.Unmarshal(o.Body, &conv)
			if err == nil {
				conv.Metadata = fresh
				o.Body, err = json.Marshal(&conv)
			}
			return err
		})
	if err != nil {
		return conversationError(r, err)
	}
	return x.JSON(http.StatusOK, o.Body)
}

// delete serves DELETE /v1/conversations/{conversation}. It deletes the conversation with
// its items, but not the responses that were created in it.
func (h *conversations) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := conversationID(r)
	if err := h.engine.DeleteConversation(r.Context(), c, id); err != nil {
		return conversationError(r, err)
	}
	return x.JSON(http.StatusOK, exchange.Deleted(id, "conversation.deleted"))
}

// createItems serves POST /v1/conversations/{conversation}/items.
func (h *conversations) createItems(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	q.List("include", request.Includable)
	if err := q.End(); err != nil {
		return err
	}
	var body struct {
		Items []berth.Item `json:"items"`
	}
	if err := x.Decode(r, rule.Object(rule.Fields{"items": rule.List(h.rules.Item, maxNewItems)}, "items"),
		&body); err != nil {
		return err
	}
	if err := h.completeItems(r.Context(), c, body.Items); err != nil {
		return err
	}
	id := conversationID(r)
	err := h.objects.CreateObjects(r.Context(), c.Project, engine.ConversationItems(id, body.Items)...)
	if errors.Is(err, store.ErrExists) {
		return h.duplicateItem(r, c, body.Items)
	}
	if err == nil && len(body.Items) == 0 {
		_, err = h.find(r, c)
	}
	if err != nil {
		return conversationError(r, err)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(body.Items, false, berth.Item.ID))
}

// duplicateItem returns an error that names the first item that the conversation already
// contains.
func (h *conversations) duplicateItem(r *http.Request, c berth.Caller, items []berth.Item) error {
	for _, it := range items {
		_, err := h.objects.GetObject(r.Context(), c.Project, engine.ConversationItemKey(conversationID(r), it.ID()))
		if !errors.Is(err, store.ErrNotFound) {
			return errors.Join(err, duplicate(it.ID()))
		}
	}
	return berth.Errorf(berth.CodeConflict, "Another request is changing the conversation. Try again.")
}

// listItems serves GET /v1/conversations/{conversation}/items.
func (h *conversations) listItems(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	q.List("include", request.Includable)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	conv, err := h.find(r, c)
	if err != nil {
		return err
	}
	objects, more, err := h.objects.ListObjects(r.Context(), c.Project, store.KindConversationItem, string(conv.ID),
		page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	items := make([]berth.Item, len(objects))
	for i, o := range objects {
		if err := items[i].UnmarshalJSON(o.Body); err != nil {
			return err
		}
	}
	return x.JSON(http.StatusOK, exchange.ListOf(items, more, berth.Item.ID))
}

// getItem serves GET /v1/conversations/{conversation}/items/{item}.
func (h *conversations) getItem(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	q.List("include", request.Includable)
	if err := q.End(); err != nil {
		return err
	}
	conv, err := h.find(r, c)
	if err != nil {
		return err
	}
	o, err := h.objects.GetObject(r.Context(), c.Project, engine.ConversationItemKey(conv.ID, r.PathValue("item")))
	if err != nil {
		return conversationItemError(r, err)
	}
	return x.JSON(http.StatusOK, o.Body)
}

// deleteItem serves DELETE /v1/conversations/{conversation}/items/{item}
// and answers with the conversation.
func (h *conversations) deleteItem(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	conv, err := h.find(r, c)
	if err != nil {
		return err
	}
	if err := h.engine.DeleteConversationItem(r.Context(), c, conv.ID, r.PathValue("item")); err != nil {
		return conversationItemError(r, err)
	}
	return x.JSON(http.StatusOK, conv)
}

// find returns the conversation of the request's path.
func (h *conversations) find(r *http.Request, c berth.Caller) (*berth.Conversation, error) {
	o, err := h.objects.GetObject(r.Context(), c.Project, conversationKey(conversationID(r)))
	if err != nil {
		return nil, conversationError(r, err)
	}
	var conv berth.Conversation
	if err := json.Unmarshal(o.Body, &conv); err != nil {
		return nil, fmt.Errorf("decode conversation: %w", err)
	}
	return &conv, nil
}

func conversationID(r *http.Request) berth.ConversationID {
	return berth.ConversationID(r.PathValue("conversation"))
}

func conversationKey(id berth.ConversationID) store.ObjectKey {
	return store.ObjectKey{Kind: store.KindConversation, ID: string(id)}
}

func conversationError(r *http.Request, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return berth.NotFound("Conversation", rule.Clip(string(conversationID(r))))
	}
	return err
}

func conversationItemError(r *http.Request, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return berth.Errorf(berth.CodeNotFound, "Item with id '%s' not found in conversation.",
			rule.Clip(r.PathValue("item")))
	}
	return err
}

// completeItems checks the new items of a conversation and replaces each by its full form.
// It refuses references, because there are no other items that they could refer to.
func (h *conversations) completeItems(ctx context.Context, c berth.Caller, items []berth.Item) error {
	taken := map[string]bool{}
	for i, it := range items {
		it, err := h.rules.Normalize(it)
		if err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
		at := fmt.Sprintf("items[%d].id", i)
		switch it.Type() {
		case berth.ItemReference:
			return berth.Invalid(at, "Item with id '%s' not found.", rule.Clip(it.ID()))
		case berth.ItemCompactionTrigger:
			return berth.Invalid(fmt.Sprintf("items[%d]", i),
				"Invalid 'items[%d]': a compaction_trigger is only allowed in the input of a response.", i)
		}
		if err := h.rules.CheckItemID(at, it); err != nil {
			return err
		}
		if taken[it.ID()] {
			return duplicate(it.ID())
		}
		taken[it.ID()], items[i] = true, it
	}
	fetched, err := h.engine.FetchFiles(ctx, items)
	if err != nil {
		return err
	}
	copy(items, fetched)
	return h.engine.CheckItems(ctx, c, items)
}

func duplicate(id string) error {
	return berth.Invalid("items",
		"Duplicate item found with id %s. Remove duplicate items from your input and try again.", rule.Clip(id))
}
