package transcript

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berth-run/berth"
)

func textItem(id string, size int) berth.Item {
	return berth.NewItem(berth.Message{ID: id, Type: berth.ItemMessage, Role: "user",
		Content: []berth.Content{{Type: "input_text", Text: strings.Repeat("x", size)}}})
}

// held is the JSON that the cached chains hold in memory.
func (c *cache) held() (bytes int64) {
	seen := map[*byte]bool{}
	for _, e := range c.byID {
		for _, it := range e.Value.(*entry).chain.Items {
			if raw := it.Raw(); !seen[&raw[0]] {
				seen[&raw[0]] = true
				bytes += int64(len(raw))
			}
		}
	}
	return bytes
}

// Responses with long inputs do not make the cache outgrow its bytes: the oldest
// goes first, and a chain above the limit is not cached.
func TestCacheIsBoundedByBytes(t *testing.T) {
	const limit = 2 << 20
	h := newCache(limit)
	key := func(i int) Key { return Key{"proj", fmt.Sprint("resp_", i)} }
	for i := range 100 {
		h.put(key(i), Chain{Items: []berth.Item{textItem("msg", 100<<10)}}, 0)
		if n := h.held(); n > limit || n > h.bytes {
			t.Fatalf("after %d responses %d bytes are held and %d are counted; the limit is %d", i+1, n, h.bytes, limit)
		}
	}
	if _, _, ok := h.get(key(99)); !ok || len(h.byID) < 5 {
		t.Errorf("%d chains are cached, the latest: %v", len(h.byID), ok)
	}
	h.put(key(100), Chain{Items: []berth.Item{textItem("msg", 2*limit)}}, 0)
	if n := h.held(); n > limit {
		t.Errorf("%d bytes are held after a chain that is longer than the limit", n)
	}
	// Of a chain that grows the latest response is cached, whatever it shares.
	var items []berth.Item
	for i := range 80 {
		items = append(slices.Clip(items), textItem(fmt.Sprint(i), 10<<10))
		h.put(key(i), Chain{Items: items}, 0)
		if _, _, ok := h.get(key(i)); !ok || h.bytes > limit {
			t.Fatalf("turn %d: cached %v, %d bytes are counted", i, ok, h.bytes)
		}
	}
	if h.clear(); h.bytes != 0 {
		t.Errorf("%d bytes are counted after clear", h.bytes)
	}
}
