package engine

import (
	linked "container/list"
	"sync"

	"github.com/berth-run/berth"
)

// defaultHistory bounds the bytes that a history holds, unless Options say otherwise.
const defaultHistory = 64 << 20

// itemOverhead is what an item takes in memory beside its JSON.
const itemOverhead = 240

// A history remembers what the latest responses leave to those that continue
// them, and what conversations held when they were last read, so that the
// thousandth turn costs Berth what the first did. It only saves reading: what
// exists, and what is new, is asked of the store each time. A deletion anywhere
// empties it.
type history struct {
	mu    sync.Mutex
	byID  map[historyKey]*linked.Element
	order *linked.List // of remembered, the latest used first
	limit int64
	bytes int64
	age   int // counts deletions
}

type historyKey struct {
	project berth.ProjectID
	id      string // of a response or a conversation
}

type remembered struct {
	key   historyKey
	chain chain
	size  int64
}

func newHistory(limit int64) *history {
	return &history{limit: limit, byID: map[historyKey]*linked.Element{}, order: linked.New()}
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
	size := sizeOf(c)
	h.mu.Lock()
	defer h.mu.Unlock()
	if age != h.age || size > h.limit {
		return
	}
	if old := h.byID[key]; old != nil {
		h.drop(old)
	}
	h.byID[key] = h.order.PushFront(&remembered{key, c, size})
	h.bytes += size
	for h.bytes > h.limit {
		h.drop(h.order.Back())
	}
}

// sizeOf returns the bytes that a chain takes in memory. Chains that continue each
// other share items, which count in each: the latest ones stay, and it is those that
// are continued.
func sizeOf(c chain) int64 {
	n := itemOverhead * len(c.items)
	for _, it := range c.items {
		n += len(it.Raw())
	}
	return int64(n)
}

func (h *history) drop(e *linked.Element) {
	old := h.order.Remove(e).(*remembered)
	delete(h.byID, old.key)
	h.bytes -= old.size
}

func (h *history) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.age++
	clear(h.byID)
	h.order.Init()
	h.bytes = 0
}
