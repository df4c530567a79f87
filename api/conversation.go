package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/api/request"
	"github.com/berth-run/berth/conversations"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/internal/rule"
)

// storedConversations serves conversations and their items.
type storedConversations struct {
	engine *engine.Engine
	rules  *request.Rules
	store  *conversations.Store
	users  *endUsers
}

// maxNewItems is the maximum number of items of one request.
const maxNewItems = 20

var updateConversationBody = rule.Object(rule.Fields{"metadata": rule.Metadata})

// create serves POST /v1/conversations. The body is optional.
func (h *storedConversations) create(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
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
	if err := h.store.Create(r.Context(), c.Project, &conv, body.Items); err != nil {
		return err
	}
	if err := h.users.own(r.Context(), c, string(conv.ID), func(ctx context.Context) error {
		return h.store.Delete(ctx, c, conv.ID)
	}); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, &conv)
}

// list serves GET /v1/conversations.
func (h *storedConversations) list(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.List(x, r, c, h.store.List, func(c *berth.Conversation) string { return string(c.ID) })
}

// get serves GET /v1/conversations/{conversation}.
func (h *storedConversations) get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, h.store.Get, conversationID(r))
}

// update serves POST /v1/conversations/{conversation}. It replaces the metadata; null
// clears it.
func (h *storedConversations) update(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
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
	conv, err := h.store.SetMetadata(r.Context(), c.Project, conversationID(r), fresh)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, conv)
}

// delete serves DELETE /v1/conversations/{conversation}. It deletes the conversation with
// its items, but not the responses that were created in it.
func (h *storedConversations) delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := conversationID(r)
	if err := h.store.Delete(r.Context(), c, id); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Deleted(id, "conversation.deleted"))
}

// createItems serves POST /v1/conversations/{conversation}/items.
func (h *storedConversations) createItems(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
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
	if err := h.store.Add(r.Context(), c.Project, conversationID(r), body.Items); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.ListOf(body.Items, false, berth.Item.ID))
}

// listItems serves GET /v1/conversations/{conversation}/items.
func (h *storedConversations) listItems(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	q.List("include", request.Includable)
	page := q.Page(20, 100)
	if err := q.End(); err != nil {
		return err
	}
	conv, err := h.store.Get(r.Context(), c.Project, conversationID(r))
	if err != nil {
		return err
	}
	items, more, err := h.store.Items(r.Context(), c.Project, conv.ID, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.ListOf(items, more, berth.Item.ID))
}

// getItem serves GET /v1/conversations/{conversation}/items/{item}.
func (h *storedConversations) getItem(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	q.List("include", request.Includable)
	if err := q.End(); err != nil {
		return err
	}
	conv, err := h.store.Get(r.Context(), c.Project, conversationID(r))
	if err != nil {
		return err
	}
	item, err := h.store.Item(r.Context(), c.Project, conv.ID, r.PathValue("item"))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, item)
}

// deleteItem serves DELETE /v1/conversations/{conversation}/items/{item}
// and answers with the conversation.
func (h *storedConversations) deleteItem(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	conv, err := h.store.Get(r.Context(), c.Project, conversationID(r))
	if err != nil {
		return err
	}
	if err := h.store.DeleteItem(r.Context(), c, conv.ID, r.PathValue("item")); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, conv)
}

func conversationID(r *http.Request) berth.ConversationID {
	return berth.ConversationID(r.PathValue("conversation"))
}

// completeItems checks the new items of a conversation and replaces each by its full form.
// It refuses references, because there are no other items that they could refer to.
func (h *storedConversations) completeItems(ctx context.Context, c berth.Caller, items []berth.Item) error {
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
			return conversations.Duplicate(it.ID())
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
