package transcript

import (
	linked "container/list"
	"sync"

	"github.com/berth-run/berth"
)

// defaultCache is the default of Options.Cache.
const defaultCache = 64 << 20

// itemOverhead is the memory of an item besides its JSON and its decoded text, in bytes.
const itemOverhead = 600

// A cache holds the chains of the latest responses, and the last read items of
// conversations, so that the cost of a turn does not grow with its history. It only saves
// reads: existence and new items are always read from the store. Any deletion empties it.
// It is safe for concurrent use.
type cache struct {
	mu    sync.Mutex
	byID  map[Key]*linked.Element
	order *linked.List // of entries, the last used first
	limit int64
	bytes int64
	age   int // counts deletions
}

// A Key names a response or a conversation in a project.
type Key struct {
	Project berth.ProjectID
	ID      string
}

type entry struct {
	key   Key
	chain Chain
	size  int64
}

func newCache(limit int64) *cache {
	return &cache{limit: limit, byID: map[Key]*linked.Element{}, order: linked.New()}
}

// get returns a cached chain and whether it is cached. The caller passes age to put with
// the chain that it reads otherwise.
func (c *cache) get(key Key) (chain Chain, age int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byID[key]
	if e == nil {
		return Chain{}, c.age, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*entry).chain, c.age, true
}

// now returns the age of a chain that is read after the call.
func (c *cache) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.age
}

// put caches a chain whose items must not change afterwards. It does nothing if there was
// a deletion after age.
func (c *cache) put(key Key, chain Chain, age int) {
	size := sizeOf(chain)
	c.mu.Lock()
	defer c.mu.Unlock()
	if age != c.age || size > c.limit {
		return
	}
	if old := c.byID[key]; old != nil {
		c.drop(old)
	}
	c.byID[key] = c.order.PushFront(&entry{key, chain, size})
	c.bytes += size
	for c.bytes > c.limit {
		c.drop(c.order.Back())
	}
}

// sizeOf returns the memory of a chain in bytes. Items that chains share count in each of
// them, so the latest chains stay, which are the ones to be continued.
func sizeOf(c Chain) int64 {
	n := itemOverhead * len(c.Items)
	for _, it := range c.Items {
		n += 2 * len(it.Raw())
	}
	return int64(n)
}

func (c *cache) drop(e *linked.Element) {
	old := c.order.Remove(e).(*entry)
	delete(c.byID, old.key)
	c.bytes -= old.size
}

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.age++
	clear(c.byID)
	c.order.Init()
	c.bytes = 0
}
