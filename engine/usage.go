package engine

import (
	"context"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// book reserves tokens for a request before any work is done for it: its own text at four
// bytes a token, and max_output_tokens.
func (e *Engine) book(ctx context.Context, c berth.Caller, req *berth.ResponseRequest) (end func(used int), err error) {
	bytes := 0
	for _, it := range req.Input {
		bytes += len(it.Raw())
	}
	if req.Instructions != nil {
		bytes += len(*req.Instructions)
	}
	tokens := bytes / 4
	if req.MaxOutputTokens != nil {
		tokens += *req.MaxOutputTokens
	}
	return e.Quota.Begin(ctx, c, tokens)
}

// count records the usage of a request that makes no response.
func (e *Engine) count(ctx context.Context, caller berth.Caller, name string, u berth.Usage,
	turns []berth.UpstreamUsage) {
	body := &berth.Response{Model: name, Usage: &u}
	for _, turn := range turns {
		body.Berth = body.Berth.AddTurn(turn)
	}
	for _, used := range store.ResponseUsage(caller.Project, caller.Key, body, time.Now()) {
		if err := e.Usages.AddUsage(context.WithoutCancel(ctx), used); err != nil {
			e.Log.Error("failed to record usage", "request_id", caller.RequestID, "err", err)
		}
	}
}
