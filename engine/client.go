package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// join makes ctx a client of the run, until ctx ends. c is nil for a run in the background or a
// resumed one, which continue without clients.
func (c *clients) join(ctx context.Context) {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.here++
	c.joins++
	c.mu.Unlock()
	context.AfterFunc(ctx, c.leave)
}

// leave removes a client. If it was the last and no other joins in time, leave ends the
// run, and deletes a response that is not to be stored.
func (c *clients) leave() {
	r := c.run
	c.mu.Lock()
	c.here--
	joins := c.joins
	c.mu.Unlock()
	if c.patience > 0 {
		t := time.NewTimer(c.patience)
		defer t.Stop()
		select {
		case <-r.ended:
		case <-t.C:
		}
	}
	c.mu.Lock()
	over := c.here == 0 && c.joins == joins
	c.mu.Unlock()
	if !over {
		return
	}
	r.cancel(errDisconnected)
	if !r.record.Request.Stored() {
		r.engine.purge(r)
	}
}

// existing returns the response that the caller names, as it was created, and makes ctx a
// client of its run. It returns store.ErrNotFound if the response does not exist.
func (e *Engine) existing(ctx context.Context, caller berth.Caller) (*berth.Response, error) {
	r := e.live.get(caller.Response)
	if r != nil && r.record.Project == caller.Project {
		r.clients.join(ctx)
	}
	events, err := e.Responses.Events(ctx, caller.Project, caller.Response, -1, 1)
	if err != nil {
		return nil, err
	}
	var created berth.Event
	if err := json.Unmarshal(events[0].Data, &created); err != nil {
		return nil, fmt.Errorf("decode first event: %w", err)
	}
	if r == nil {
		if err := e.heldElsewhere(ctx, caller.Project, caller.Response); err != nil {
			return nil, err
		}
	}
	if r == nil && !created.Response.Store {
		return nil, berth.Errorf(berth.CodeUnavailable,
			"The response to this request was not stored and is being deleted. Send the request again in a moment.")
	}
	return created.Response, nil
}

// purge deletes a response that was not to be stored, once its run has ended. If that
// fails, a sweep deletes it later (recovery.go).
func (e *Engine) purge(r *run) {
	<-r.ended
	defer e.live.await(r.id(), -1)
	ctx, cancel := context.WithTimeout(context.Background(), endGrace)
	defer cancel()
	err := e.Responses.DeleteResponse(ctx, r.record.Project, r.id())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		r.log().Error("failed to delete response with store false", "err", err)
	}
}
