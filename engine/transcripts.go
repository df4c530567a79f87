package engine

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// Before returns the items that were in a stored response's conversation when it began,
// or nil if it has none. It does not return what the response continues by
// previous_response_id.
func (e *Engine) Before(ctx context.Context, rec *store.Response) ([]berth.Item, error) {
	if rec.Body.Conversation == nil {
		return nil, nil
	}
	c, err := e.transcripts.Stored(ctx, rec)
	return c.Items, err
}

// Seal seals the encrypted_content in a document of a project that Unseal has opened, on
// this server or another.
func (e *Engine) Seal(p berth.ProjectID, doc json.RawMessage) (json.RawMessage, error) {
	return e.transcripts.Seal(p, doc)
}

// Unseal returns a document of a project with the encrypted_content of items that this
// server has sealed in the clear, for another server to seal.
func (e *Engine) Unseal(p berth.ProjectID, doc json.RawMessage) (json.RawMessage, error) {
	return e.transcripts.Unseal(p, doc)
}

// FetchFiles returns items with the content of each file that they name by URL.
func (e *Engine) FetchFiles(ctx context.Context, items []berth.Item) ([]berth.Item, error) {
	return e.transcripts.FetchFiles(ctx, items)
}

// CheckItems returns an error for the client about items that no model could be shown.
func (e *Engine) CheckItems(ctx context.Context, caller berth.Caller, items []berth.Item) error {
	return e.transcripts.CheckItems(ctx, caller.Project, items)
}

// includeThought is the value of "include" that asks for encrypted_content.
const includeThought = "reasoning.encrypted_content"

// sealThought returns a function that seals reasoning, or nil if the client did not ask
// for it.
func (r *run) sealThought() func([]berth.Content) string {
	if !slices.Contains(r.record.Request.Include, includeThought) {
		return nil
	}
	return func(content []berth.Content) string {
		return r.engine.transcripts.SealThought(r.record.Project, content)
	}
}

// keep holds the chain that the response has left, for the next.
func (r *run) keep() {
	body := r.writer.Body()
	r.engine.transcripts.Keep(r.transcript, r.options.unstored, &body, r.record.Container, r.origin)
}
