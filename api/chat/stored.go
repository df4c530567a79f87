package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api/exchange"
	"github.com/berth-run/berth/completions"
	"github.com/berth-run/berth/internal/rule"
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
func (d *Door) save(ctx context.Context, a *answer, requestID string) error {
	if !a.request.Store {
		return nil
	}
	if d.Stores != nil { // as at OpenAI, a project that stores nothing refuses no request
		stores, err := d.Stores(ctx, a.caller.Project)
		if err != nil || !stores {
			return err
		}
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
	var messages []completions.Document
	for i := range req.Messages {
		m := newStoredMessage(fmt.Sprintf("%s-%d", saved.ID, i), &req.Messages[i])
		body, err := json.Marshal(m)
		if err != nil {
			return err
		}
		messages = append(messages, completions.Document{ID: m.ID, Body: body})
	}
	p := a.caller.Project
	if err := d.Completions.Create(ctx, p, saved.Created, completions.Document{ID: saved.ID, Body: body},
		messages); err != nil {
		return err
	}
	if a.caller.Subject == nil {
		return nil
	}
	if err := d.EndUsers.Own(ctx, a.caller, saved.ID); err != nil {
		_ = d.Completions.Delete(context.WithoutCancel(ctx), p, saved.ID) // nobody could delete it with its user
		return err
	}
	return nil
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

// Get serves GET /v1/chat/completions/{completion}.
func (d *Door) Get(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Get(x, r, c, d.Completions.Get, r.PathValue("completion"))
}

// Update serves POST /v1/chat/completions/{completion}. It replaces the metadata.
func (d *Door) Update(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	var change struct {
		Metadata map[string]string `json:"metadata"`
	}
	if err := x.Decode(r, rule.Object(rule.Fields{"metadata": rule.Metadata}), &change); err != nil {
		return err
	}
	if change.Metadata == nil {
		change.Metadata = map[string]string{}
	}
	body, err := d.Completions.Update(r.Context(), c.Project, r.PathValue("completion"),
		func(was json.RawMessage) (json.RawMessage, error) {
			var saved storedCompletion
			if err := json.Unmarshal(was, &saved); err != nil {
				return nil, fmt.Errorf("decode completion: %w", err)
			}
			saved.Metadata = change.Metadata
			return json.Marshal(saved)
		})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, body)
}

// Delete serves DELETE /v1/chat/completions/{completion}.
func (d *Door) Delete(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	return exchange.Delete(x, r, c, d.Completions.Delete, r.PathValue("completion"), "chat.completion.deleted")
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
	fits := func(body json.RawMessage) bool { return isOf(body, model, wanted) }
	if model == "" && len(wanted) == 0 {
		fits = nil
	}
	found, more, err := d.Completions.List(r.Context(), c.Project, page, fits)
	if err != nil {
		return exchange.ListError(err, page)
	}
	return x.JSON(http.StatusOK, exchange.Documents(found, more, documentOf))
}

func documentOf(d completions.Document) (id string, body json.RawMessage) { return d.ID, d.Body }

// isOf reports whether a completion has the model and the metadata. An empty model means any.
func isOf(body json.RawMessage, model string, wanted map[string]string) bool {
	var saved struct {
		Model    string            `json:"model"`
		Metadata map[string]string `json:"metadata"`
	}
	if json.Unmarshal(body, &saved) != nil || model != "" && saved.Model != model {
		return false
	}
	for k, v := range wanted {
		if got, ok := saved.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// ListMessages serves GET /v1/chat/completions/{completion}/messages: the messages of the
// completion's request.
func (d *Door) ListMessages(x *exchange.Exchange, r *http.Request, c berth.Caller) error {
	q := exchange.NewQuery(r)
	page := q.PageAscending()
	if err := q.End(); err != nil {
		return err
	}
	messages, more, err := d.Completions.Messages(r.Context(), c.Project, r.PathValue("completion"), page)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, exchange.Documents(messages, more, documentOf))
}
