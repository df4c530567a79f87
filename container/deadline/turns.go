package deadline

import (
	"context"
	"sync"

	"github.com/berth-run/berth"
)

// turns let one request, or the end of a deadline, at a time pause or resume a sandbox of this server. Otherwise
// a client could connect to a sandbox while it is being paused, and get one that is paused. The zero value is
// ready; it is safe for concurrent use.
type turns struct {
	mu    sync.Mutex
	taken map[berth.ContainerID]chan struct{} // closed when the turn ends
}

// take waits for the turn of a sandbox, which lasts until done is called.
func (t *turns) take(ctx context.Context, id berth.ContainerID) (done func(), err error) {
	for {
		t.mu.Lock()
		other := t.taken[id]
		if other == nil {
			break
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	defer t.mu.Unlock()
	if t.taken == nil {
		t.taken = map[berth.ContainerID]chan struct{}{}
	}
	mine := make(chan struct{})
	t.taken[id] = mine
	return func() {
		t.mu.Lock()
		delete(t.taken, id)
		t.mu.Unlock()
		close(mine)
	}, nil
}

// Turn waits until nothing else pauses or resumes a sandbox, and lets nothing else do so before done is called.
func (d *Records) Turn(ctx context.Context, id berth.ContainerID) (done func(), err error) {
	return d.turns.take(ctx, id)
}
