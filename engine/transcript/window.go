package transcript

import (
	"bytes"
	"strings"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// maxShortened is the number of times that a context is shortened after refusals of the
// upstream. Each time it loses a third; after the last a tenth is left.
const maxShortened = 6

// A Window is the number of tokens that a model accepts, as one run knows it.
type Window struct {
	Size      int // tokens, with the answer; 0 if unknown
	learned   int // tokens that a context may have after a refusal; 0 before
	shortened int // refusals so far
	sizes     *sizes
}

// Window returns the window of a model with this size in tokens, or 0 if unknown.
func (s *Service) Window(size int) Window { return Window{Size: size, sizes: &s.sizes} }

// measure returns an estimate of the tokens in a lowered item.
func (w *Window) measure(it berth.Item) int { return w.sizes.of(it) }

// Limits of sizes: the number of items, and the length of each id, which a client may have
// chosen.
const (
	maxSizes  = 100_000
	maxSizeID = 128
)

// sizes caches estimates of the tokens in items, so that an item in the context of many
// turns is counted once. It is safe for concurrent use.
type sizes struct {
	mu    sync.Mutex
	known map[sizeKey]int
}

// A sizeKey identifies an item. It includes the length because clients may reuse ids.
type sizeKey struct {
	id     string
	length int
}

func (s *sizes) of(it berth.Item) int {
	key := sizeKey{it.ID(), len(it.Raw())}
	if key.id == "" || len(key.id) > maxSizeID {
		return model.EstimateItem(it)
	}
	s.mu.Lock()
	n, ok := s.known[key]
	s.mu.Unlock()
	if ok {
		return n
	}
	n = model.EstimateItem(it)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSizes {
		s.known = map[sizeKey]int{}
	}
	s.known[key] = n
	return n
}

// Tokens returns an estimate of the tokens in a request's context.
func (w *Window) Tokens(req *model.Request) int {
	bare := *req
	bare.Items = nil
	n := model.Estimate(&bare)
	for _, it := range req.Items {
		n += w.measure(it)
	}
	return n
}

// Bound returns the number of tokens that a request's context may have with room for the
// answer, or false if unknown.
func (w *Window) Bound(req *model.Request) (int, bool) {
	if w.Size == 0 {
		return w.learned, w.learned > 0
	}
	answer := min(4096, w.Size/8)
	if req.MaxOutputTokens > 0 {
		answer = min(req.MaxOutputTokens, w.Size/2)
	}
	if w.learned > 0 {
		return min(w.learned, w.Size-answer), true
	}
	return w.Size - answer, true
}

// Fit drops the oldest items of a request until it fits the window, if that is known. It
// returns the number of dropped items.
func (w *Window) Fit(req *model.Request) int {
	bound, known := w.Bound(req)
	if !known || AtMost(req) <= bound {
		return 0
	}
	return w.Drop(req, bound)
}

// Drop drops the oldest items of a request until it has at most bound tokens. It returns
// the number of dropped items.
func (w *Window) Drop(req *model.Request, bound int) int {
	items := len(req.Items)
	req.Items = dropOldest(req.Items, w.Tokens(req)-bound, w.measure)
	return items - len(req.Items)
}

// Kept returns the number of tokens of the user's messages that survive a compaction
// verbatim. threshold is that of the compaction, or 0.
func (w *Window) Kept(threshold int) int {
	n := maxKept
	for _, bound := range []int{threshold, w.Size, w.learned} {
		if bound > 0 {
			n = min(n, bound/4)
		}
	}
	return n
}

// Shorten lowers the bound after the upstream refused a request as too long. It reports
// whether a shorter request is possible.
func (w *Window) Shorten(req *model.Request) bool {
	if w.shortened == maxShortened {
		return false
	}
	w.shortened++
	total := w.Tokens(req)
	w.learned = total * 2 / 3
	return len(dropOldest(req.Items, total-w.learned, w.measure)) < len(req.Items)
}

// AtMost returns an upper bound of the tokens in a request's context without counting
// them: a token has at least one byte, or is part of an image.
func AtMost(req *model.Request) int {
	n := len(req.Instructions) + len(req.Text.Format)
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Parameters) + 16
	}
	for _, it := range req.Items {
		n += len(it.Raw()) + 1000*bytes.Count(it.Raw(), []byte("input_image"))
	}
	return n + 16
}

// dropOldest drops the oldest items until their sizes reach excess, and then the model's
// items up to the next message of the user, because a context starts with one. It drops
// the items of one turn together with the outputs of its calls. It never drops
// instructions, the newest message of the user, or the last item.
func dropOldest(items []berth.Item, excess int, size func(berth.Item) int) []berth.Item {
	units, kept := unitsOf(items)
	members := map[int][]berth.Item{}
	for i, u := range units {
		members[u] = append(members[u], items[i])
	}
	dropped, hasUser := map[int]bool{}, false
	for i, it := range items {
		u, user := units[i], it.Role() == "user"
		if dropped[u] {
			continue
		}
		if excess <= 0 && (hasUser || user) {
			break
		}
		if kept[u] {
			hasUser = hasUser || user
			continue
		}
		dropped[u] = true
		for _, member := range members[u] {
			excess -= size(member)
		}
	}
	out := make([]berth.Item, 0, len(items))
	for i, it := range items {
		if !dropped[units[i]] {
			out = append(out, it)
		}
	}
	return out
}

// unitsOf returns the number of each item's unit, whose items are dropped together, and
// the units that must not be dropped.
func unitsOf(items []berth.Item) (units []int, kept map[int]bool) {
	units, kept = make([]int, len(items)), map[int]bool{}
	called := map[string]int{} // the unit of a call, by its id
	next, inTurn, lastUser := 0, false, -1
	for i, it := range items {
		models := isModels(it)
		if !models || !inTurn {
			next++
		}
		inTurn = models
		units[i] = next
		switch {
		case models && it.CallID() != "":
			called[it.CallID()] = next
		case IsResult(it):
			if u, ok := called[it.CallID()]; ok {
				units[i] = u
			}
		case it.Role() == "system" || it.Role() == "developer" || isSummary(it):
			kept[next] = true
		case it.Role() == "user":
			lastUser = next
		}
	}
	kept[lastUser] = true
	if len(items) > 0 {
		kept[units[len(items)-1]] = true
	}
	return units, kept
}

// IsResult reports whether an item is the output of a call of any kind.
func IsResult(it berth.Item) bool {
	return it.CallID() != "" && strings.HasSuffix(string(it.Type()), "_output")
}

// isModels reports whether a model made an item.
func isModels(it berth.Item) bool {
	return it.Role() != "user" && it.Role() != "system" && it.Role() != "developer" && !IsResult(it)
}
