package container

import (
	"fmt"
	"sync"
	"time"

	"github.com/berth-run/berth"
)

// An index holds the instances whose sandboxes are not removed yet.
type index struct {
	work    *workers
	volumes *volumes // released when an instance is unregistered

	mu        sync.Mutex
	instances map[berth.ContainerID]*instance
}

// register adds a new instance. It returns an error for the client if the server has limit
// instances already, or the project has most. A negative most means no limit.
func (x *index) register(s *instance, limit, most int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.work.stopped() {
		return errStopping
	}
	if len(x.instances) >= limit {
		return berth.Errorf(berth.CodeRateLimited,
			"%d containers are running, the limit of this server. Delete one, or wait until one expires.",
			len(x.instances))
	}
	if most >= 0 {
		if n := x.countLocked(s.project); n >= most {
			return &berth.Error{Code: berth.CodeRateLimited, Type: "requests", RetryAfter: 10 * time.Second,
				Message: fmt.Sprintf(
					"Rate limit reached for project %s on containers: Limit %d, Used %d, Requested 1. Delete one, or wait until one expires.",
					s.project, most, n)}
		}
	}
	x.instances[s.id] = s
	return nil
}

// countLocked counts a project's instances that are alive or starting. x.mu is held.
func (x *index) countLocked(p berth.ProjectID) int {
	n := 0
	for _, s := range x.instances {
		if s.project == p && s.life.Err() == nil {
			n++
		}
	}
	return n
}

// registerDead adds an instance that has ended, so that the sweeper removes its sandbox.
func (x *index) registerDead(s *instance) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.instances[s.id] = s
}

// unregister removes a destroyed instance from the index and releases its volumes.
func (x *index) unregister(s *instance) {
	x.volumes.release(s)
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.instances, s.id)
}

// lookup returns the project's instance of a container, or nil.
func (x *index) lookup(p berth.ProjectID, id berth.ContainerID) *instance {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.instances[id]; s != nil && s.project == p {
		return s
	}
	return nil
}

// all returns all instances, in no order.
func (x *index) all() []*instance {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := make([]*instance, 0, len(x.instances))
	for _, s := range x.instances {
		all = append(all, s)
	}
	return all
}

// sweepWidth is how many sandboxes are handled concurrently.
const sweepWidth = 8
