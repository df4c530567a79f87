package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// An Option changes how Create answers one request.
type Option func(*run)

// Within lets a request continue what m remembers, and m remember its response
// unless that is stored.
func Within(m *Memory) Option { return func(r *run) { r.memory = m } }

// Prepared ends a response as soon as it is created, without asking the model. A
// response that continues it finds its input and its container.
func Prepared() Option { return func(r *run) { r.prepared = true } }

// As gives the response an id that a part of this server has noted already, so that
// after a crash it can tell whether Create did its work, or ask it again. An id that
// is taken is store.ErrExists.
func As(id berth.ResponseID) Option { return func(r *run) { r.as = id } }

// Holding has hold called when the run of the response starts, and what that returns
// when the run has ended. It is for what the request holds until then. hold is not called
// if Create fails or finds that the response was created before.
func Holding(hold func() (release func())) Option { return func(r *run) { r.holding = hold } }

// Through has a provider answer in the place of the model's own. It is for responses
// that are not stored: another life of the server would ask the model's.
func Through(p model.Provider) Option { return func(r *run) { r.provider = p } }

// A Memory keeps what responses that are not stored leave to those that continue
// them. It is in this process only and belongs to a client's connection, which
// says what to forget. It is safe for concurrent use; a nil one remembers nothing.
type Memory struct {
	limit int64 // bytes of all items

	mu    sync.Mutex
	held  int64
	memos map[historyKey]*memo
}

// A memo is there from the creation of a response on, so that who continues a
// response as soon as its end is told finds it.
type memo struct {
	settled chan struct{} // closed when the run has ended
	chain   chain
	size    int64
}

// NewMemory returns a memory for items of so many bytes. What does not fit is not
// remembered.
func NewMemory(limit int64) *Memory {
	return &Memory{limit: limit, memos: map[historyKey]*memo{}}
}

// Forget removes a response of a project; one that is not there is no matter.
func (m *Memory) Forget(p berth.ProjectID, id berth.ResponseID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(historyKey{p, string(id)})
}

func (m *Memory) remove(key historyKey) {
	if memo := m.memos[key]; memo != nil {
		m.held -= memo.size
		delete(m.memos, key)
	}
}

// expect makes place for a response that was created.
func (m *Memory) expect(key historyKey) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.memos[key] = &memo{settled: make(chan struct{})}
}

// settle remembers what an expected response leaves. One that has failed or was
// cancelled leaves nothing.
func (m *Memory) settle(key historyKey, left chain, status berth.Status) {
	if m == nil {
		return
	}
	var size int64
	for _, it := range left.items {
		size += int64(len(it.Raw()))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	memo := m.memos[key]
	if memo == nil {
		return // forgotten meanwhile
	}
	if status != berth.StatusCompleted && status != berth.StatusIncomplete || m.held+size > m.limit {
		delete(m.memos, key)
	} else {
		memo.chain, memo.size = left, size
		m.held += size
	}
	close(memo.settled)
}

// chain returns what a response left, waiting for the end of its run. It reports
// whether it is remembered; the error is the cause of ctx's end.
func (m *Memory) chain(ctx context.Context, key historyKey) (chain, bool, error) {
	if m == nil {
		return chain{}, false, nil
	}
	m.mu.Lock()
	memo := m.memos[key]
	m.mu.Unlock()
	if memo == nil {
		return chain{}, false, nil
	}
	select {
	case <-memo.settled:
	case <-ctx.Done():
		return chain{}, false, context.Cause(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return memo.chain, m.memos[key] == memo, nil
}

// before returns what comes before a request's input: what a client's memory
// holds, or what is stored. What continues a response that was not stored cannot
// be stored either, or it would be a chain without its beginning.
func (e *Engine) before(ctx context.Context, p berth.ProjectID, m *Memory, req *berth.ResponseRequest) (chain, error) {
	c, remembered, err := m.chain(ctx, historyKey{p, string(req.PreviousResponseID)})
	if err != nil {
		return c, err
	}
	if !remembered {
		return sourceOf(req.PreviousResponseID, req.Conversation).read(ctx, e, p)
	}
	if req.Stored() {
		return c, berth.Invalid("store", "Previous response with id '%s' was not stored. What continues it must have 'store' false.", req.PreviousResponseID)
	}
	return c, nil
}

// remember keeps what a finished response leaves to the next.
func (e *Engine) remember(r *run) {
	body := r.writer.Body()
	left := chain{items: sinceCompaction(slices.Clip(r.history), body.Output), container: r.chain.container, origin: r.origin}
	if r.record.Container != "" {
		left.container = r.record.Container
	}
	switch {
	case !body.Store:
		r.memory.settle(r.key(), left, body.Status)
	case body.Status.Final() && body.Conversation == nil:
		e.past.put(r.key(), left, r.chain.age)
	}
}
