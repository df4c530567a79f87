package engine

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Before returns the items that a stored response's conversation had when the response was
// created, or nil without a conversation. It does not follow previous_response_id.
func (e *Engine) Before(ctx context.Context, rec *store.Response) ([]berth.Item, error) {
	if rec.Body.Conversation == nil {
		return nil, nil
	}
	c, err := e.transcripts.Stored(ctx, rec)
	return c.Items, err
}

// Seal encrypts the encrypted_content in a document of a project that Unseal has
// decrypted, on this server or another.
func (e *Engine) Seal(p berth.ProjectID, doc json.RawMessage) (json.RawMessage, error) {
	return e.transcripts.Seal(p, doc)
}

// Unseal decrypts the encrypted_content that this server has sealed in a document of a
// project, so that another server can seal it with its own key.
func (e *Engine) Unseal(p berth.ProjectID, doc json.RawMessage) (json.RawMessage, error) {
	return e.transcripts.Unseal(p, doc)
}

// FetchFiles returns items with the content of each file that they refer to by URL.
func (e *Engine) FetchFiles(ctx context.Context, items []berth.Item) ([]berth.Item, error) {
	return e.transcripts.FetchFiles(ctx, items)
}

// CheckItems returns an error for the client if items cannot be shown to a model.
func (e *Engine) CheckItems(ctx context.Context, caller berth.Caller, items []berth.Item) error {
	return e.transcripts.CheckItems(ctx, caller.Project, items)
}

// includeThought is the value of "include" that requests encrypted_content.
const includeThought = "reasoning.encrypted_content"

// sealThought returns a function that seals reasoning, or nil if the request does not
// include it.
func (r *run) sealThought() func([]berth.Content) string {
	if !slices.Contains(r.record.Request.Include, includeThought) {
		return nil
	}
	return func(content []berth.Content) string {
		return r.engine.transcripts.SealThought(r.record.Project, content)
	}
}
