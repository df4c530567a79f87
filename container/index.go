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

// An allowance is how many instances may run.
type allowance struct {
	most    int            // of the project; negative means no limit
	subject *berth.Subject // with the limit of its user; may be nil
}

// register adds a new instance. It returns an error for the client if the server has limit
// instances already, or the project or its end user has those of the allowance.
func (x *index) register(s *instance, limit int, of allowance) error {
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
	if most := of.most; most >= 0 {
		if n := x.countLocked(s.project, ""); n >= most {
			return &berth.Error{Code: berth.CodeRateLimited, Type: "requests", RetryAfter: 10 * time.Second,
				Message: fmt.Sprintf(
					"Rate limit reached for project %s on containers: Limit %d, Used %d, Requested 1. Delete one, or wait until one expires.",
					s.project, most, n)}
		}
	}
	if u := of.subject; u != nil && u.Limits.Containers != nil && *u.Limits.Containers >= 0 {
		if n, most := x.countLocked(s.project, u.EndUser), *u.Limits.Containers; int64(n) >= most {
			return &berth.Error{Code: berth.CodeRateLimited, Type: "requests", RetryAfter: 10 * time.Second,
				Message: fmt.Sprintf("End user %s runs %d containers and the limit is %d. "+
					"Delete one, or wait until one expires.", u.EndUser, n, most)}
		}
	}
	x.instances[s.id] = s
	return nil
}

// countLocked counts the instances of a project that are alive or starting: those of an end user, or all if that is
// empty. x.mu is held.
func (x *index) countLocked(p berth.ProjectID, of berth.EndUserID) int {
	n := 0
	for _, s := range x.instances {
		if s.project == p && (of == "" || s.body.Berth.EndUser == of) && s.life.Err() == nil {
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
