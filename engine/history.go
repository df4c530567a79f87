package engine

import (
	linked "container/list"
	"sync"

	"github.com/berth-run/berth"
)

// maxRemembered bounds the items that are remembered, of all chains together.
const maxRemembered = 200_000

// A history remembers what the latest responses leave to those that continue
// them, and what conversations held when they were last read, so that the
// thousandth turn costs Berth what the first did. It only saves reading: what
// exists, and what is new, is asked of the store each time. A deletion anywhere
// empties it.
type history struct {
	mu    sync.Mutex
	byID  map[historyKey]*linked.Element
	order *linked.List // of remembered, the latest used first
	items int
	age   int // counts deletions
}

type historyKey struct {
	project berth.ProjectID
	id      string // of a response or a conversation
}

type remembered struct {
	key   historyKey
	chain chain
}

func newHistory() *history {
	return &history{byID: map[historyKey]*linked.Element{}, order: linked.New()}
}

// get returns a chain that is remembered. If there is none, age is for the put of
// what is read instead.
func (h *history) get(key historyKey) (c chain, age int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.byID[key]
	if e == nil {
		return chain{}, h.age, false
	}
	h.order.MoveToFront(e)
	return e.Value.(*remembered).chain, h.age, true
}

// now returns the age, for what is about to be read.
func (h *history) now() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.age
}

// put remembers a chain, whose items nobody changes any more, unless something
// was deleted since the age at which it was read.
func (h *history) put(key historyKey, c chain, age int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if age != h.age || len(c.items) > maxRemembered {
		return
	}
	if old := h.byID[key]; old != nil {
		h.drop(old)
	}
	h.byID[key] = h.order.PushFront(&remembered{key, c})
	h.items += len(c.items)
	for h.items > maxRemembered {
		h.drop(h.order.Back())
	}
}

func (h *history) drop(e *linked.Element) {
	old := h.order.Remove(e).(*remembered)
	delete(h.byID, old.key)
	h.items -= len(old.chain.items)
}

func (h *history) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.age++
	clear(h.byID)
	h.order.Init()
	h.items = 0
}
