package engine

import (
	"bytes"
	"strings"
	"sync"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

// truncationAuto is the "truncation" that lets old items be dropped.
const truncationAuto = "auto"

// maxShortened is how often a context is made shorter because the upstream refused
// it. Each time a third goes, after the last there is a tenth.
const maxShortened = 6

// A window is what a run knows of how much its model takes.
type window struct {
	size      int // tokens, with the answer; 0 is unknown
	learned   int // tokens that a context may have after a refusal; 0 before
	shortened int // refusals so far
	sizes     *sizes
}

// window returns what is known of a model's before it is asked.
func (e *Engine) window(name string) window {
	return window{size: e.Models.Window(name), sizes: &e.sizes}
}

// measure returns about how many tokens a lowered item has.
func (w *window) measure(it berth.Item) int { return w.sizes.of(it) }

// Bounds on what sizes remember: items, and the bytes of the id of each, which may be
// a client's.
const (
	maxSizes  = 100_000
	maxSizeID = 128
)

// sizes remember about how many tokens items have, so that one that comes again
// turn after turn is counted once. They are safe for concurrent use.
type sizes struct {
	mu    sync.Mutex
	known map[sizeKey]int
}

// A sizeKey tells items apart. Clients make ids as well, so the length is part of it.
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

// tokens returns about how many tokens a request's context has.
func (w *window) tokens(req *model.Request) int {
	bare := *req
	bare.Items = nil
	n := model.Estimate(&bare)
	for _, it := range req.Items {
		n += w.measure(it)
	}
	return n
}

// bound returns how many tokens a request's context may have so that there is room
// for the answer, and false if that is not known.
func (w *window) bound(req *model.Request) (int, bool) {
	if w.size == 0 {
		return w.learned, w.learned > 0
	}
	answer := min(4096, w.size/8)
	if req.MaxOutputTokens > 0 {
		answer = min(req.MaxOutputTokens, w.size/2)
	}
	if w.learned > 0 {
		return min(w.learned, w.size-answer), true
	}
	return w.size - answer, true
}

// fit drops the oldest items of a request whose response allows it, until the
// context is within what the model is known to take.
func (r *run) fit(req *model.Request) {
	bound, known := r.window.bound(req)
	if r.record.Body.Truncation != truncationAuto || !known || atMost(req) <= bound {
		return
	}
	items := len(req.Items)
	excess := r.window.tokens(req) - bound
	req.Items = dropOldest(req.Items, excess, r.window.measure)
	if dropped := items - len(req.Items); dropped > 0 {
		r.log().Info("old items are left out of the context", "items", dropped, "bound", bound)
	}
}

// shorten learns from the upstream's finding a request too long. It reports whether
// it can be asked again with less.
func (w *window) shorten(req *model.Request) bool {
	if w.shortened == maxShortened {
		return false
	}
	w.shortened++
	total := w.tokens(req)
	w.learned = total * 2 / 3
	return len(dropOldest(req.Items, total-w.learned, w.measure)) < len(req.Items)
}

// atMost returns a number of tokens that the request's context does not exceed,
// without counting them: a token has a byte at least, or is part of an image.
func atMost(req *model.Request) int {
	n := len(req.Instructions) + len(req.Text.Format)
	for _, t := range req.Tools {
		n += len(t.Name) + len(t.Description) + len(t.Parameters) + 16
	}
	for _, it := range req.Items {
		n += len(it.Raw()) + 1000*bytes.Count(it.Raw(), []byte("input_image"))
	}
	return n + 16
}

// dropOldest drops items from the oldest on until their sizes come to excess, and
// then what the model said up to the next message of the user, with which a context
// begins. What a model said at a time goes or stays with its calls and their
// outputs. Instructions stay, and so does what the model is to answer: the newest
// message of the user, and the last that happened.
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
		case isResult(it):
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

// isResult reports whether an item is a call's output, of whatever kind.
func isResult(it berth.Item) bool {
	return it.CallID() != "" && strings.HasSuffix(string(it.Type()), "_output")
}

// isSaid reports whether a model made an item.
func isSaid(it berth.Item) bool {
	return it.Role() != "user" && it.Role() != "system" && it.Role() != "developer" && !isResult(it)
}
