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
	aside    = 10 * time.Minute // that a key which was refused is asked last
	restTime = time.Second      // the same for one that was asked too much, if nothing was said
)

// A key is a Key and how it does. What follows the first line is the ring's.
type key struct {
	Key
	inFlight int
	last     uint64    // the turn at which it was taken
	until    time.Time // it is asked last
	firm     bool      // it is not asked at all until then: the upstream said so
	bad      bool      // it was refused when it was last used
}

// A ring is an upstream's keys.
type ring struct {
	keys  []*key
	mu    sync.Mutex
	taken uint64 // how often one was
}

func newRing(keys []Key) *ring {
	r := &ring{}
	for _, k := range keys {
		r.keys = append(r.keys, &key{Key: k})
	}
	return r
}

// errTried is why there is no key to ask with, if none has to rest.
var errTried = errors.New("all keys were tried")

// take returns the key to ask with: the preferred one, else that with the fewest
// questions in flight; keys that rest come last. Those that were tried are left out.
// It must be put back.
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
		return nil, model.WithRetryAfter(&berth.Error{Code: berth.CodeRateLimited, Message: "The model's server asks to try later."}, soonest)
	}
	if best == nil {
		return nil, errTried
	}
	best.inFlight++
	r.taken++
	best.last = r.taken
	return best, nil
}

// before reports whether k should rather be asked with than b.
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

// put gives a key back.
func (r *ring) put(k *key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.inFlight--
}

// rest asks with others for a time; if it is firm, not with this one at all.
func (r *ring) rest(k *key, d time.Duration, firm bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.until, k.firm = time.Now().Add(d), firm
}

// refused notes that the upstream refuses a key, and reports whether that is new.
func (r *ring) refused(k *key) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, k.bad = !k.bad, true
	return first
}

// accepted notes that the upstream has answered with a key.
func (r *ring) accepted(k *key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.bad = false
}
