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

// The kinds of stored objects: a completion, and each message of its request.
const (
	kindCompletion        = store.KindCompletion
	kindCompletionMessage = store.KindCompletionMessage
)

// A storedCompletion is a stored completion with fields of its request.
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
	Content      json.RawMessage  `json:"content"` // a string; null if ContentParts is set
	Refusal      *string          `json:"refusal"`
	Name         *string          `json:"name"`
	ContentParts json.RawMessage  `json:"content_parts"`
	ToolCalls    []completionCall `json:"tool_calls,omitempty"`
	FunctionCall *calledFunction  `json:"function_call,omitempty"`
	ToolCallID   string           `json:"tool_call_id,omitempty"`
}

// save stores a completion that has ended, if the request has store: true.
func (d *Door) save(ctx context.Context, p berth.ProjectID, a *answer, requestID string) error {
	if !a.request.Store {
		return nil
	}
	req := a.request
	saved := storedCompletion{completion: a.whole(), Metadata: req.Metadata, RequestID: requestID,
		ToolChoice: req.ToolChoice, Tools: req.Tools,
		ResponseFormat: req.ResponseFormat, Seed: req.Seed, TopP: valueOr(req.TopP, 1),
		Temperature:     valueOr(req.Temperature, 1),
		PresencePenalty: valueOr(req.PresencePenalty, 0), FrequencyPenalty: valueOr(req.FrequencyPenalty, 0),
		InputUser: req.User}
	if saved.Metadata == nil {
		saved.Metadata = map[string]string{}
	}
	body, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	objects := []*store.Object{{ObjectKey: completionKey(saved.ID), CreatedAt: saved.Created, Body: body}}
	for i := range req.Messages {
		m := newStoredMessage(fmt.Sprintf("%s-%d", saved.ID, i), &req.Messages[i])
		body, err := json.Marshal(m)
		if err != nil {
			return err
		}
		objects = append(objects,
			&store.Object{ObjectKey: store.ObjectKey{Kind: kindCompletionMessage, Parent: saved.ID, ID: m.ID},
				CreatedAt: saved.Created, Body: body})
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
	return berth.NotFound("Chat completion", rule.Clip(id))
}

// completionMissing returns the client's error for a failed read of a completion.
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

// Update serves POST /v1/chat/completions/{completion}. It replaces the metadata.
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
		var saved storedCompletion
		if err := json.Unmarshal(o.Body, &saved); err != nil {
			return fmt.Errorf("decode completion: %w", err)
		}
		saved.Metadata = change.Metadata
		var err error
		o.Body, err = json.Marshal(saved)
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

// List serves GET /v1/chat/completions: the stored completions, optionally filtered by
// model and metadata.
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

// isOf reports whether a completion has the model and the metadata. An empty model means any.
func isOf(o *store.Object, model string, wanted map[string]string) bool {
	var saved struct {
		Model    string            `json:"model"`
		Metadata map[string]string `json:"metadata"`
	}
	if json.Unmarshal(o.Body, &saved) != nil || model != "" && saved.Model != model {
		return false
	}
	for k, v := range wanted {
		if got, ok := saved.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// listSome returns a page of the objects for which fits is true. A nil fits means all.
func (d *Door) listSome(ctx context.Context, p berth.ProjectID, kind store.Kind, page store.Page,
	fits func(*store.Object) bool) ([]*store.Object, bool, error) {
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

// ListMessages serves GET /v1/chat/completions/{completion}/messages: the messages of the
// completion's request.
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
