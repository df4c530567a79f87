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
	// Begin books a response that is thought to need so many tokens, or returns an
	// error for the client. end must be called, with how many it did need.
	Begin(ctx context.Context, p berth.ProjectID, tokens int) (end func(used int), err error)
	// Full returns an error for the client if the project may store nothing more.
	Full(ctx context.Context, p berth.ProjectID) error
	// Resume books one that a former life of the server has begun.
	Resume(p berth.ProjectID) (end func(used int))
}

// noQuota bounds nothing.
type noQuota struct{}

func (noQuota) Begin(context.Context, berth.ProjectID, int) (func(int), error) {
	return func(int) {}, nil
}
func (noQuota) Full(context.Context, berth.ProjectID) error { return nil }
func (noQuota) Resume(berth.ProjectID) func(int)            { return func(int) {} }

// book books what a request is thought to need before any work is done for it: its
// own text at four bytes a token, and all that may be said.
func (e *Engine) book(ctx context.Context, p berth.ProjectID, req *berth.ResponseRequest) (end func(used int), err error) {
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
	return e.Quota.Begin(ctx, p, tokens)
}

// count counts what was used for a request that makes no response.
func (e *Engine) count(ctx context.Context, caller berth.Caller, name string, u berth.Usage, turns []berth.UpstreamUsage) {
	body := &berth.Response{Model: name, Usage: &u}
	for _, turn := range turns {
		body.Berth = body.Berth.AddTurn(turn)
	}
	for _, used := range store.ResponseUsage(caller.Project, caller.Key, body, time.Now()) {
		if err := e.Usages.AddUsage(context.WithoutCancel(ctx), used); err != nil {
			e.Log.Error("what was used was not counted", "request_id", caller.RequestID, "err", err)
		}
	}
}

// turnsOf returns a turn as its response tells it, or nothing if its upstream has
// no name.
func turnsOf(f model.Finish) []berth.UpstreamUsage {
	if f.Origin.Upstream == "" {
		return nil
	}
	return []berth.UpstreamUsage{{Upstream: f.Origin.Upstream, Model: f.Origin.Model, Turns: 1, Usage: f.Usage, Cost: f.Cost}}
}

// fullEvery is after how many bytes of an answer a run checks whether its project may
// store more.
const fullEvery = 256 << 10

// full returns an error if the run's project may store nothing more. The run then ends:
// its last event is stored nevertheless.
func (r *run) full(ctx context.Context) error {
	r.storedAt = r.said
	return r.engine.Quota.Full(ctx, r.record.Project)
}
