package balance

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/model"
)

const (
	aside    = 10 * time.Minute // how long a refused key is used last
	restTime = time.Second      // the same for a rate-limited key, if the upstream named no time
)

// A key is a Key and its state, guarded by the ring's mu.
type key struct {
	Key
	inFlight int
	last     uint64    // the turn that last used it
	until    time.Time // used last until then
	firm     bool      // not used at all until then, because the upstream named the time
	bad      bool      // refused at its last use
}

// A ring holds an upstream's keys.
type ring struct {
	keys  []*key
	mu    sync.Mutex
	taken uint64 // how many times a key was taken
}

func newRing(keys []Key) *ring {
	r := &ring{}
	for _, k := range keys {
		r.keys = append(r.keys, &key{Key: k})
	}
	return r
}

// errTried is returned if all keys were tried and none is resting.
var errTried = errors.New("all keys were tried")

// take returns the key to use: the preferred one, else the one with the fewest
// requests in flight. Resting keys come last, and those in tried are skipped. The
// caller must put it back.
func (r *ring) take(preferred string, tried []*key) (*key, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	var best *key
	var soonest time.Duration
	for _, k := range r.keys {
		rest := k.until.Sub(now)
		if rest > 0 && k.firm {
			if soonest == 0 || rest < soonest {
				soonest = rest
			}
			continue
		}
		if slices.Contains(tried, k) {
			continue
		}
		if best == nil || k.before(best, preferred, now) {
			best = k
		}
	}
	if best == nil && soonest > 0 {
		return nil, model.WithRetryAfter(&berth.Error{Code: berth.CodeRateLimited,
			Message: "The model's server is rate limited. Try again later."}, soonest)
	}
	if best == nil {
		return nil, errTried
	}
	best.inFlight++
	r.taken++
	best.last = r.taken
	return best, nil
}

// before reports whether k should be used before b.
func (k *key) before(b *key, preferred string, now time.Time) bool {
	if rests, b := k.until.After(now), b.until.After(now); rests != b {
		return b
	}
	if preferred != "" && (k.Name == preferred) != (b.Name == preferred) {
		return k.Name == preferred
	}
	if k.inFlight != b.inFlight {
		return k.inFlight < b.inFlight
	}
	return k.last < b.last
}

// put ends a use of a key.
func (r *ring) put(k *key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.inFlight--
}

// rest makes a key the last choice for a time. If firm, it is not used at all.
func (r *ring) rest(k *key, d time.Duration, firm bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.until, k.firm = time.Now().Add(d), firm
}

// refused records that the upstream refused a key. It reports whether this is new.
func (r *ring) refused(k *key) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, k.bad = !k.bad, true
	return first
}

// accepted records that the upstream answered with a key.
func (r *ring) accepted(k *key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.bad = false
}

// A Key is one secret of an upstream, and the provider that uses it.
type Key struct {
	Name     string // shown in place of the secret: its environment variable
	Provider model.Provider
}
