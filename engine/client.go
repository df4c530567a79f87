package engine

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/berth-run/berth"
)

// returnTime is how long the run of a named response waits for a client that was
// lost to come again, unless Options say otherwise.
const returnTime = 10 * time.Second

// clients are those for whom a foreground run works. It ends with the last of them.
type clients struct {
	patience time.Duration // after the last one has left

	mu    sync.Mutex
	here  int
	joins int // so far
}

// join makes ctx one of the run's clients, until it ends. A run that has no clients
// by its nature, in the background or resumed, does not mind.
func (r *run) join(ctx context.Context) {
	c := r.clients
	if c == nil {
		return
	}
	c.mu.Lock()
	c.here++
	c.joins++
	c.mu.Unlock()
	context.AfterFunc(ctx, r.leave)
}

// leave ends the run if its last client has left and none comes in time. A response
// that is not to be stored is purged then.
func (r *run) leave() {
	c := r.clients
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
	r.cancel(errLeft)
	if !r.record.Request.Stored() {
		r.engine.purge(r)
	}
}

// again returns the response that the caller names, as it was created, for ctx as
// one more client of its run. store.ErrNotFound if there is none.
func (e *Engine) again(ctx context.Context, caller berth.Caller) (*berth.Response, error) {
	e.mu.Lock()
	r := e.runs[caller.Response]
	e.mu.Unlock()
	if r != nil && r.record.Project == caller.Project {
		r.join(ctx)
	}
	events, err := e.Responses.Events(ctx, caller.Project, caller.Response, -1, 1)
	if err != nil {
		return nil, err
	}
	var created berth.Event
	if err := json.Unmarshal(events[0].Data, &created); err != nil {
		return nil, err
	}
	if r == nil && !created.Response.Store {
		return nil, berth.Errorf(berth.CodeUnavailable, "The response to this request was not stored and is being removed. Ask again in a moment.")
	}
	return created.Response, nil
}
