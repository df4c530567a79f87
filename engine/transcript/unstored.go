package transcript

import (
	"context"
	"slices"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// An Unstored holds the chains of responses that are not stored, so that others can
// continue them. It belongs to a client's connection, which decides what to forget. It is
// safe for concurrent use. A nil Unstored is empty.
type Unstored struct {
	limit int64 // bytes of all items

	mu     sync.Mutex
	bytes  int64
	chains map[Key]*unstoredChain
}

// An unstoredChain chain is added when its response is created, so that a client can continue
// the response as soon as it ends.
type unstoredChain struct {
	settled chan struct{} // closed when the run has ended
	chain   Chain
	size    int64
}

// NewUnstored returns an Unstored that holds items of at most limit bytes. A chain that
// does not fit is not held.
func NewUnstored(limit int64) *Unstored {
	return &Unstored{limit: limit, chains: map[Key]*unstoredChain{}}
}

// Forget removes a response of a project, if it is there.
func (m *Unstored) Forget(p berth.ProjectID, id berth.ResponseID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(Key{p, string(id)})
}

func (m *Unstored) remove(key Key) {
	if held := m.chains[key]; held != nil {
		m.bytes -= held.size
		delete(m.chains, key)
	}
}

// Expect adds a response that was created.
func (m *Unstored) Expect(key Key) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.chains[key] = &unstoredChain{settled: make(chan struct{})}
}

// settle sets the chain of an expected response that has ended. It removes one that
// failed or was cancelled.
func (m *Unstored) settle(key Key, left Chain, status berth.Status) {
	if m == nil {
		return
	}
	var size int64
	for _, it := range left.Items {
		size += int64(len(it.Raw()))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	held := m.chains[key]
	if held == nil {
		return // forgotten
	}
	if status != berth.StatusCompleted && status != berth.StatusIncomplete || m.bytes+size > m.limit {
		delete(m.chains, key)
	} else {
		held.chain, held.size = left, size
		m.bytes += size
	}
	close(held.settled)
}

// chain waits for the end of a response's run and returns its chain and whether it is
// held. The error is the cause of ctx's end.
func (m *Unstored) chain(ctx context.Context, key Key) (Chain, bool, error) {
	if m == nil {
		return Chain{}, false, nil
	}
	m.mu.Lock()
	held := m.chains[key]
	m.mu.Unlock()
	if held == nil {
		return Chain{}, false, nil
	}
	select {
	case <-held.settled:
	case <-ctx.Done():
		return Chain{}, false, context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return held.chain, m.chains[key] == held, nil
}

// Before returns the chain before a request's input, from m or from the store. A request
// that continues a response that was not stored cannot be stored either, because its chain
// would lack the beginning.
func (s *Service) Before(ctx context.Context, p berth.ProjectID, m *Unstored, req *berth.ResponseRequest) (Chain,
	error) {
	c, held, err := m.chain(ctx, Key{p, string(req.PreviousResponseID)})
	if err != nil {
		return c, err
	}
	if !held {
		return sourceOf(req.PreviousResponseID, req.Conversation).read(ctx, s, p)
	}
	if req.Stored() {
		return c, berth.Invalid("store",
			"Previous response with id '%s' was not stored. Set 'store' to false to continue it.",
			req.PreviousResponseID)
	}
	return c, nil
}

// Remember holds the chain up to an ended response, for those that continue it: in m if
// the response is not stored, else in the cache.
func (s *Service) Remember(t *Transcript, m *Unstored, body *berth.Response, container berth.ContainerID,
	origin model.Origin) {
	key := Key{t.project, string(body.ID)}
	left := Chain{Items: sinceCompaction(slices.Clip(t.items), body.Output), Container: t.Chain.Container,
		Origin: origin}
	if container != "" {
		left.Container = container
	}
	switch {
	case !body.Store:
		m.settle(key, left, body.Status)
	case body.Status.Final() && body.Conversation == nil:
		s.cache.put(key, left, t.Chain.age)
	}
}

// Clear empties the cache. It must be called after a deletion.
func (s *Service) Clear() { s.cache.clear() }
