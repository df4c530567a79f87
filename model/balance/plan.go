package balance

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/berth-run/berth/model"
)

// plan returns the order in which targets are asked: who answered the turn before,
// then the other primaries by weight and chance, then the fallbacks. Requests with
// the same prompt cache key, which says that they begin alike, have the same order.
// Each further attempt begins with the next, for the first has broken off.
func (g *Group) plan(req *model.Request) []Target {
	if len(g.opts.Primaries) == 1 && len(g.opts.Fallbacks) == 0 {
		return g.opts.Primaries
	}
	plan := append(shuffle(g.opts.Primaries, req.Hints.PromptCacheKey), g.opts.Fallbacks...)
	if n := slices.IndexFunc(plan, func(t Target) bool { return prefers(req, t) }); n > 0 {
		first := plan[n]
		plan = slices.Insert(slices.Delete(plan, n, n+1), 0, first)
	}
	turn := req.Attempt % len(plan)
	return slices.Concat(plan[turn:], plan[:turn])
}

// prefers reports whether the target answered the turn before, by what is known of
// it or by the last reasoning that has an upstream's stamp.
func prefers(req *model.Request, t Target) bool {
	if t.Upstream.opts.Anonymous {
		return false
	}
	name := req.Prefer.Upstream
	if name == "" {
		name = lastStamp(req.Items)
	}
	return name == t.Upstream.opts.Name
}

// shuffle returns the targets in an order that is drawn by weight: by chance, or
// by a word, if there is one.
func shuffle(targets []Target, word string) []Target {
	type drawn struct {
		Target
		at float64
	}
	all := make([]drawn, len(targets))
	for i, t := range targets {
		chance := rand.Float64()
		if word != "" {
			chance = hash(word, t.Upstream.opts.Name)
		}
		// Of exponentially distributed times the least is each one's with a
		// probability of its rate's share: weighted rendezvous hashing.
		all[i] = drawn{t, -math.Log(1-chance) / float64(max(t.Weight, 1))}
	}
	slices.SortFunc(all, func(a, b drawn) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	out := make([]Target, len(all))
	for i, d := range all {
		out[i] = d.Target
	}
	return out
}

// hash returns a number in [0, 1) that two words make.
func hash(a, b string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a + "\x00" + b))
	n := h.Sum64()
	n ^= n >> 33 // FNV's last bytes reach few of its high bits
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	return float64(n>>11) / (1 << 53)
}
