package engine

import (
	"context"
	"sync"

	"github.com/berth-run/berth"
)

// A registry holds the responses that this process works on. It is safe for concurrent
// use.
type registry struct {
	mu      sync.Mutex
	runs    map[berth.ResponseID]*run
	claims  map[berth.ResponseID]chan struct{} // closed when the claim is released
	awaited map[berth.ResponseID]int           // clients and purges of responses that are not stored
}

func newRegistry() *registry {
	return &registry{runs: map[berth.ResponseID]*run{}, claims: map[berth.ResponseID]chan struct{}{},
		awaited: map[berth.ResponseID]int{}}
}

func (g *registry) add(r *run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs[r.id()] = r
}

func (g *registry) remove(r *run) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.runs, r.id())
}

// get returns the run of a response in this process, or nil.
func (g *registry) get(id berth.ResponseID) *run {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.runs[id]
}

// all returns the runs of this process.
func (g *registry) all() []*run {
	g.mu.Lock()
	defer g.mu.Unlock()
	runs := make([]*run, 0, len(g.runs))
	for _, r := range g.runs {
		runs = append(runs, r)
	}
	return runs
}

// count returns the number of runs of this process.
func (g *registry) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.runs)
}

// busy reports whether a response must not be resumed: it runs in this process, or it is
// not stored and its clients still read it.
func (g *registry) busy(id berth.ResponseID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.runs[id] != nil || g.awaited[id] > 0
}

// await changes the number of clients that read a response that is not stored.
func (g *registry) await(id berth.ResponseID, change int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.awaited[id] += change; g.awaited[id] == 0 {
		delete(g.awaited, id)
	}
}

// forget ends the wait for all clients of a response that was deleted.
func (g *registry) forget(id berth.ResponseID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.awaited, id)
}

// claim waits until no other goroutine of this process creates or resumes a response, and
// then holds the response until release is called. The error is the cause of ctx's end.
func (g *registry) claim(ctx context.Context, id berth.ResponseID) (release func(), err error) {
	for {
		g.mu.Lock()
		other := g.claims[id]
		if other == nil {
			defer g.mu.Unlock()
			claimed := make(chan struct{})
			g.claims[id] = claimed
			return func() {
				g.mu.Lock()
				delete(g.claims, id)
				g.mu.Unlock()
				close(claimed)
			}, nil
		}
		g.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
