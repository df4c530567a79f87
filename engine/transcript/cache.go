package transcript

import (
	linked "container/list"
	"sync"

	"github.com/berth-run/berth"
)

// defaultCache is the default of Options.Cache.
const defaultCache = 64 << 20

// itemOverhead is what an item takes in memory beside its JSON.
const itemOverhead = 240

// A cache holds the chains of the latest responses, and the items of conversations as
// they were last read, so that the thousandth turn costs what the first did. It only
// saves reading: the store is asked each time what exists and what is new. A deletion
// anywhere empties it.
type cache struct {
	mu    sync.Mutex
	byID  map[Key]*linked.Element
	order *linked.List // of entries, the latest used first
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

// get returns a cached chain. If there is none, age is for the put of the chain that is
// read instead.
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

// now returns the age, for what is about to be read.
func (c *cache) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.age
}

// put caches a chain, whose items must not change any more, unless something was deleted
// since the age at which it was read.
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

// sizeOf returns the bytes that a chain takes in memory. Chains that continue each
// other share items, which count in each: the latest ones stay, and it is those that
// are continued.
func sizeOf(c Chain) int64 {
	n := itemOverhead * len(c.Items)
	for _, it := range c.Items {
		n += len(it.Raw())
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
