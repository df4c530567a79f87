package transcript

import (
	"bytes"
	"strings"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// maxShortened is how often a context is made shorter because the upstream refused
// it. Each time a third goes, after the last there is a tenth.
const maxShortened = 6

// A Window is how many tokens a model takes, as far as one run knows.
type Window struct {
	Size      int // tokens, with the answer; 0 is unknown
	learned   int // tokens that a context may have after a refusal; 0 before
	shortened int // refusals so far
	sizes     *sizes
}

// Window returns the window of a model of this size before the model is asked.
func (s *Service) Window(size int) Window { return Window{Size: size, sizes: &s.sizes} }

// measure returns about how many tokens a lowered item has.
func (w *Window) measure(it berth.Item) int { return w.sizes.of(it) }

// Limits of a sizes: items, and the bytes of the id of each, which may be a client's.
const (
	maxSizes  = 100_000
	maxSizeID = 128
)

// A sizes caches about how many tokens items have, so that one that comes again turn
// after turn is counted once. It is safe for concurrent use.
type sizes struct {
	mu    sync.Mutex
	known map[sizeKey]int
}

// A sizeKey identifies an item. Clients make ids as well, so the length is part of it.
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

// Tokens returns about how many tokens a request's context has.
func (w *Window) Tokens(req *model.Request) int {
	bare := *req
	bare.Items = nil
	n := model.Estimate(&bare)
	for _, it := range req.Items {
		n += w.measure(it)
	}
	return n
}

// Bound returns how many tokens a request's context may have so that there is room
// for the answer, or false if that is not known.
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

// Fit drops the oldest items of a request until it is within what the model is known
// to take. It returns the number of dropped items.
func (w *Window) Fit(req *model.Request) int {
	bound, known := w.Bound(req)
	if !known || AtMost(req) <= bound {
		return 0
	}
	return w.Drop(req, bound)
}

// Drop drops the oldest items of a request that has more tokens than bound. It returns
// their number.
func (w *Window) Drop(req *model.Request, bound int) int {
	items := len(req.Items)
	req.Items = dropOldest(req.Items, w.Tokens(req)-bound, w.measure)
	return items - len(req.Items)
}

// Kept returns how many tokens of the user's messages a compaction keeps verbatim whose
// threshold this is; 0 is none.
func (w *Window) Kept(threshold int) int {
	n := maxKept
	for _, bound := range []int{threshold, w.Size, w.learned} {
		if bound > 0 {
			n = min(n, bound/4)
		}
	}
	return n
}

// Shorten learns that the upstream found a request too long. It reports whether a shorter
// one can be sent.
func (w *Window) Shorten(req *model.Request) bool {
	if w.shortened == maxShortened {
		return false
	}
	w.shortened++
	total := w.Tokens(req)
	w.learned = total * 2 / 3
	return len(dropOldest(req.Items, total-w.learned, w.measure)) < len(req.Items)
}

// AtMost returns a number of tokens that the request's context does not exceed,
// without counting them: a token has a byte at least, or is part of an image.
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

// dropOldest drops items from the oldest on until their sizes reach excess, and then the
// model's items up to the next message of the user, with which a context begins. The
// items of one turn are dropped together, with the outputs of its calls. Instructions
// stay, and so does what the model is to answer: the newest message of the user, and the
// last item.
func dropOldest(items []berth.Item, excess int, size func(berth.Item) int) []berth.Item {
	units, kept := unitsOf(items)
	members := map[int][]berth.Item{}
	for i, u := range units {
		members[u] = append(members[u], items[i])
	}
	dropped, asked := map[int]bool{}, false
	for i, it := range items {
		u, user := units[i], it.Role() == "user"
		if dropped[u] {
			continue
		}
		if excess <= 0 && (asked || user) {
			break
		}
		if kept[u] {
			asked = asked || user
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

// unitsOf returns the unit of each item, which are numbered, and the units that
// must be kept.
func unitsOf(items []berth.Item) (units []int, kept map[int]bool) {
	units, kept = make([]int, len(items)), map[int]bool{}
	called := map[string]int{} // the unit of a call, by its id
	next, speaks, lastUser := 0, false, -1
	for i, it := range items {
		said := isSaid(it)
		if !said || !speaks {
			next++
		}
		speaks = said
		units[i] = next
		switch {
		case said && it.CallID() != "":
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

// isSaid reports whether a model made an item.
func isSaid(it berth.Item) bool {
	return it.Role() != "user" && it.Role() != "system" && it.Role() != "developer" && !IsResult(it)
}
