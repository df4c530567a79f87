package engine

import (
	"context"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
	"github.com/berth-run/berth/store"
)

// A Quota bounds the responses of projects; *project.Quota is one.
type Quota interface {
	// Begin reserves an estimated number of tokens for a response of a caller, or returns an
	// error for the client. end must be called with the number of tokens used, which is
	// negative if the request is forwarded to another server, which counts it.
	Begin(ctx context.Context, c berth.Caller, tokens int) (end func(used int), err error)
	// Full returns an error for the client if the project has reached its storage limit.
	Full(ctx context.Context, p berth.ProjectID) error
	// Resume counts a response that an earlier process of this server has started.
	Resume(p berth.ProjectID) (end func(used int))
}

// noQuota bounds nothing.
type noQuota struct{}

func (noQuota) Begin(context.Context, berth.Caller, int) (func(int), error) {
	return func(int) {}, nil
}
func (noQuota) Full(context.Context, berth.ProjectID) error { return nil }
func (noQuota) Resume(berth.ProjectID) func(int)            { return func(int) {} }

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
func (e *Engine) count(ctx context.Context, caller berth.Caller, name string, u berth.Usage, turns []berth.UpstreamUsage) {
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

// turnsOf returns a turn as its response shows it, or nil if its upstream has no name.
func turnsOf(f model.Finish) []berth.UpstreamUsage {
	if f.Origin.Upstream == "" {
		return nil
	}
	return []berth.UpstreamUsage{{Upstream: f.Origin.Upstream, Model: f.Origin.Model, Turns: 1, Usage: f.Usage, Cost: f.Cost}}
}

// quotaInterval is the number of output bytes between two checks of the project's storage
// limit.
const quotaInterval = 256 << 10

// checkQuota returns an error if the run's project has reached its storage limit. The run
// then ends; its last event is stored nevertheless.
func (r *run) checkQuota(ctx context.Context) error {
	r.checkedAt = r.written
	return r.engine.Quota.Full(ctx, r.record.Project)
}
