package balance

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/berth-run/berth/model"
)

// plan returns the targets in the order to try: the one that answered the turn before,
// the other primaries at random by weight, then the fallbacks. Requests with the same
// prompt cache key share an order, because they start alike. Each further attempt
// starts one target later, because the earlier ones broke off.
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

// prefers reports whether the target answered the turn before. If the request does not
// name it, the last reasoning with an upstream's stamp does.
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

// shuffle returns the targets in an order drawn by weight: at random, or determined by
// a word if it is not empty.
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
		// The minimum of exponentially distributed times belongs to each target with
		// the probability of its share of the rates: weighted rendezvous hashing.
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

// hash maps two words to a number in [0, 1).
func hash(a, b string) float64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a + "\x00" + b))
	n := h.Sum64()
	n ^= n >> 33 // FNV's last bytes reach few of its high bits
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	return float64(n>>11) / (1 << 53)
}
