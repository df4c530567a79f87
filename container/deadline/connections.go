package deadline

import (
	"context"
	"sync"

	"github.com/berth-run/berth"
)

// connections are the requests of the data plane that use sandboxes on this server, also streams and
// WebSockets. They end before a sandbox is paused, as a container that is in use cannot be paused. The zero
// value is empty; it is safe for concurrent use.
type connections struct {
	mu   sync.Mutex
	open map[berth.ContainerID]map[*connection]struct{}
}

type connection struct {
	cancel context.CancelFunc
	closed chan struct{}
}

// add adds a connection until done is called. The context that it returns ends when the connection must.
func (c *connections) add(ctx context.Context, id berth.ContainerID) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	added := &connection{cancel: cancel, closed: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[berth.ContainerID]map[*connection]struct{}{}
	}
	if c.open[id] == nil {
		c.open[id] = map[*connection]struct{}{}
	}
	c.open[id][added] = struct{}{}
	return ctx, func() {
		cancel()
		c.mu.Lock()
		delete(c.open[id], added)
		if len(c.open[id]) == 0 {
			delete(c.open, id)
		}
		c.mu.Unlock()
		close(added.closed)
	}
}

// End ends the connections to a sandbox, waits until they have ended, and returns their number.
func (c *connections) end(ctx context.Context, id berth.ContainerID) (n int, err error) {
	c.mu.Lock()
	var ending []*connection
	for o := range c.open[id] {
		o.cancel()
		ending = append(ending, o)
	}
	c.mu.Unlock()
	for _, o := range ending {
		select {
		case <-o.closed:
		case <-ctx.Done():
			return len(ending), context.Cause(ctx)
		}
	}
	return len(ending), nil
}
