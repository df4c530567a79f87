package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/internal/rule"
	"github.com/berth-run/berth/store"
)

// A completion that is to be stored is an object, and so is each message of its
// request.
const (
	kindCompletion        = store.KindCompletion
	kindCompletionMessage = store.KindCompletionMessage
)

// A storedCompletion is a completion as it is read again, with fields of its request.
type storedCompletion struct {
	completion
	Metadata         map[string]string `json:"metadata"`
	RequestID        string            `json:"request_id"`
	ToolChoice       json.RawMessage   `json:"tool_choice"`
	Tools            []json.RawMessage `json:"tools"`
	ResponseFormat   json.RawMessage   `json:"response_format"`
	Seed             *int64            `json:"seed"`
	TopP             float64           `json:"top_p"`
	Temperature      float64           `json:"temperature"`
	PresencePenalty  float64           `json:"presence_penalty"`
	FrequencyPenalty float64           `json:"frequency_penalty"`
	InputUser        *string           `json:"input_user"`
}

// A storedMessage is a message of the request.
type storedMessage struct {
	ID           string           `json:"id"`
	Role         string           `json:"role"`
	Content      json.RawMessage  `json:"content"` // a string; null if there are parts
	Refusal      *string          `json:"refusal"`
	Name         *string          `json:"name"`
	ContentParts json.RawMessage  `json:"content_parts"`
	ToolCalls    []completionCall `json:"tool_calls,omitempty"`
	FunctionCall *calledFunction  `json:"function_call,omitempty"`
	ToolCallID   string           `json:"tool_call_id,omitempty"`
}

// save saves a completion that has ended, if it is to be stored.
func (d *Door) save(ctx context.Context, p berth.ProjectID, a *answer, requestID string) error {
	if !a.asked.Store {
		return nil
	}
	asked := a.asked
	kept := storedCompletion{completion: a.whole(), Metadata: asked.Metadata, RequestID: requestID, ToolChoice: asked.ToolChoice, Tools: asked.Tools,
		ResponseFormat: asked.ResponseFormat, Seed: asked.Seed, TopP: valueOr(asked.TopP, 1), Temperature: valueOr(asked.Temperature, 1),
		PresencePenalty: valueOr(asked.PresencePenalty, 0), FrequencyPenalty: valueOr(asked.FrequencyPenalty, 0), InputUser: asked.User}
	if kept.Metadata == nil {
		kept.Metadata = map[string]string{}
	}
	body, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	objects := []*store.Object{{ObjectKey: completionKey(kept.ID), CreatedAt: kept.Created, Body: body}}
	for i := range asked.Messages {
		m := newStoredMessage(fmt.Sprintf("%s-%d", kept.ID, i), &asked.Messages[i])
		body, err := json.Marshal(m)
		if err != nil {
			return err
		}
		objects = append(objects, &store.Object{ObjectKey: store.ObjectKey{Kind: kindCompletionMessage, Parent: kept.ID, ID: m.ID}, CreatedAt: kept.Created, Body: body})
	}
	return d.Objects.CreateObjects(ctx, p, objects...)
}

func newStoredMessage(id string, m *completionMessage) storedMessage {
	out := storedMessage{ID: id, Role: m.Role, Content: m.Content, Refusal: m.Refusal, Name: exchange.OrNull(m.Name),
		ToolCalls: m.ToolCalls, FunctionCall: m.FunctionCall, ToolCallID: m.ToolCallID}
	if len(m.Content) > 0 && m.Content[0] == '[' {
		out.Content, out.ContentParts = nil, m.Content
	}
	return out
}

func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func completionKey(id string) store.ObjectKey { return store.ObjectKey{Kind: kindCompletion, ID: id} }

func completionNotFound(id string) error {
	return berth.Errorf(berth.CodeNotFound, "Chat completion with id '%s' not found.", rule.Clip(id))
}

// completionMissing returns the error for the client of reading the completion of a path.
func completionMissing(err error, id string) error {
	if errors.Is(err, store.ErrNotFound) {
		return completionNotFound(id)
	}
	return err
}

// Get serves GET /v1/chat/completions/{completion}.
func (d *Door) Get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := r.PathValue("completion")
	o, err := d.Objects.GetObject(r.Context(), c.Project, completionKey(id))
	if err != nil {
		return completionMissing(err, id)
	}
	return x.JSON(http.StatusOK, o.Body)
}

// Update serves POST /v1/chat/completions/{completion}: its metadata.
func (d *Door) Update(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := r.PathValue("completion")
	var change struct {
		Metadata map[string]string `json:"metadata"`
	}
	if err := x.Decode(r, rule.Object(rule.Fields{"metadata": rule.Metadata}), &change); err != nil {
		return err
	}
	if change.Metadata == nil {
		change.Metadata = map[string]string{}
	}
	o, err := d.Objects.UpdateObject(r.Context(), c.Project, completionKey(id), func(o *store.Object) error {
		var kept storedCompletion
		if err := json.Unmarshal(o.Body, &kept); err != nil {
			return err
		}
		kept.Metadata = change.Metadata
		var err error
		o.Body, err = json.Marshal(kept)
		return err
	})
	if err != nil {
		return completionMissing(err, id)
	}
	return x.JSON(http.StatusOK, o.Body)
}

// Delete serves DELETE /v1/chat/completions/{completion}.
func (d *Door) Delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	id := r.PathValue("completion")
	if err := d.Objects.DeleteObject(r.Context(), c.Project, completionKey(id)); err != nil {
		return completionMissing(err, id)
	}
	return x.JSON(http.StatusOK, exchange.Deleted(id, "chat.completion.deleted"))
}

// List serves GET /v1/chat/completions: the stored ones
// with the model and the metadata that the query names.
func (d *Door) List(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	model, wanted := q.Text("model"), q.Pairs("metadata")
	page := q.PageAscending()
	if err := q.End(); err != nil {
		return err
	}
	fits := func(o *store.Object) bool { return isOf(o, model, wanted) }
	if model == "" && len(wanted) == 0 {
		fits = nil
	}
	found, more, err := d.listSome(r.Context(), c.Project, kindCompletion, page, fits)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.Documents(found, more))
}

// isOf reports whether a completion is of a model, "" for any, and has the metadata.
func isOf(o *store.Object, model string, wanted map[string]string) bool {
	var kept struct {
		Model    string            `json:"model"`
		Metadata map[string]string `json:"metadata"`
	}
	if json.Unmarshal(o.Body, &kept) != nil || model != "" && kept.Model != model {
		return false
	}
	for k, v := range wanted {
		if got, ok := kept.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// listSome returns a page of those objects that fit, of all if fits is nil.
func (d *Door) listSome(ctx context.Context, p berth.ProjectID, kind store.Kind, page store.Page, fits func(*store.Object) bool) ([]*store.Object, bool, error) {
	if fits == nil {
		return d.Objects.ListObjects(ctx, p, kind, "", page)
	}
	var found []*store.Object
	most := page.Limit
	for {
		page.Limit = 100
		objects, more, err := d.Objects.ListObjects(ctx, p, kind, "", page)
		if err != nil {
			return nil, false, err
		}
		for _, o := range objects {
			if !fits(o) {
				continue
			}
			if len(found) == most {
				return found, true, nil
			}
			found = append(found, o)
		}
		if !more || len(objects) == 0 {
			return found, false, nil
		}
		page.After = objects[len(objects)-1].ID
	}
}

// ListMessages serves GET /v1/chat/completions/{completion}/messages:
// those of its request.
func (d *Door) ListMessages(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.PageAscending()
	if err := q.End(); err != nil {
		return err
	}
	id := r.PathValue("completion")
	if _, err := d.Objects.GetObject(r.Context(), c.Project, completionKey(id)); err != nil {
		return completionMissing(err, id)
	}
	messages, more, err := d.Objects.ListObjects(r.Context(), c.Project, kindCompletionMessage, id, page)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.Documents(messages, more))
}
