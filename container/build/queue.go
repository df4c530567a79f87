package build

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth"
)

// Limits bound the builds of templates on one server. Zero values are the defaults.
type Limits struct {
	// AtOnce is how many run at the same time; others wait. One project has all but one of them at
	// most, so that its builds do not keep those of another project waiting. Default: one for each CPU and one more
	AtOnce int

	// Started is how many builds of a project run or wait; more are refused. Default: 256
	Started int

	// Time is how long one may run, without the time that it waits. Default: 30 minutes
	Time time.Duration
}

// The defaults of Limits.
const (
	defaultStarted   = 256
	defaultBuildTime = 30 * time.Minute
)

// withDefaults returns the limits with the defaults in place of zero values.
func (l Limits) withDefaults() Limits {
	if l.AtOnce == 0 {
		l.AtOnce = runtime.NumCPU() + 1
	}
	if l.Started == 0 {
		l.Started = defaultStarted
	}
	if l.Time == 0 {
		l.Time = defaultBuildTime
	}
	return l
}

// A queue admits builds of projects, a limited number concurrently. It is safe for concurrent use.
type queue struct {
	most        int // concurrently
	mostProject int // of one project

	mu      sync.Mutex
	total   int
	running map[berth.ProjectID]int
	waiting []*waiter // the longest first
}

// A waiter is a build that waits.
type waiter struct {
	project berth.ProjectID
	turn    chan struct{} // closed when the build may run
	before  int           // builds of the project that ran or waited when this one came
}

func newQueue(most int) *queue {
	return &queue{most: most, mostProject: max(1, most-1), running: map[berth.ProjectID]int{}}
}

// enter adds a build of a project, for which acquire is called once. Builds of a project run in the order in which they
// entered.
func (q *queue) enter(p berth.ProjectID) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := &waiter{project: p, turn: make(chan struct{}), before: q.running[p]}
	for _, other := range q.waiting {
		if other.project == p {
			w.before++
		}
	}
	q.waiting = append(q.waiting, w)
	q.admitLocked()
	return w
}

// acquire returns when a build that entered may run. If the build must wait, it first calls waits with the number of
// the project's builds that run or wait before it. The caller calls release once.
func (q *queue) acquire(ctx context.Context, w *waiter, waits func(before int)) (release func(), err error) {
	p := w.project
	release = func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.total--
		if q.running[p]--; q.running[p] == 0 {
			delete(q.running, p)
		}
		q.admitLocked()
	}
	select {
	case <-w.turn:
		return release, nil
	default:
		waits(w.before)
	}
	select {
	case <-w.turn:
		return release, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	at := slices.Index(q.waiting, w)
	if at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
	}
	q.mu.Unlock()
	if at < 0 { // its turn came at the same time
		release()
	}
	return nil, context.Cause(ctx)
}

// admitLocked lets builds run while there is room: first those of the project that has the fewest.
func (q *queue) admitLocked() {
	for q.total < q.most {
		next := -1
		for i, w := range q.waiting {
			n := q.running[w.project]
			if n < q.mostProject && (next < 0 || n < q.running[q.waiting[next].project]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := q.waiting[next]
		q.waiting = slices.Delete(q.waiting, next, next+1)
		q.total++
		q.running[w.project]++
		close(w.turn)
	}
}
