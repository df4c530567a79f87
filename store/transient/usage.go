package transient

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// usageDelay is how long usage waits in memory, and so how much of it a crash loses.
const usageDelay = time.Second

// lastTries is how often usage that cannot be stored is stored again when the server stops.
const lastTries = 3

// usage adds up the usage of transient responses and stores it in batches.
type usage struct {
	below store.Usages
	log   *slog.Logger

	mu   sync.Mutex
	sums map[usageKey]*store.Usage

	end  chan struct{}
	done chan struct{}
}

type usageKey struct {
	project berth.ProjectID
	kind    store.UsageKind
	key     berth.KeyID
	name    string
}

func (u *usage) open(below store.Usages, log *slog.Logger) {
	u.below, u.log = below, log
	u.sums, u.end, u.done = map[usageKey]*store.Usage{}, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(u.done)
		tick := time.NewTicker(usageDelay)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				u.flush()
			case <-u.end:
				for range lastTries {
					if u.flush() {
						return
					}
				}
				return
			}
		}
	}()
}

func (u *usage) close() {
	close(u.end)
	<-u.done
}

// add counts an ended response.
func (u *usage) add(r *store.Response) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, one := range store.ResponseUsage(r.Project, r.Key, r.Body, time.Now()) {
		u.sum(one)
	}
}

func (u *usage) sum(one *store.Usage) {
	k := usageKey{one.Project, one.Kind, one.Key, one.Name}
	sum := u.sums[k]
	if sum == nil {
		u.sums[k] = one
		return
	}
	sum.Count += one.Count
	sum.InputTokens += one.InputTokens
	sum.CachedTokens += one.CachedTokens
	sum.OutputTokens += one.OutputTokens
	sum.ReasoningTokens += one.ReasoningTokens
	sum.Seconds += one.Seconds
	sum.Cost += one.Cost
}

// flush stores the sums. It reports whether nothing is left: what cannot be stored waits for
// the next flush.
func (u *usage) flush() (empty bool) {
	u.mu.Lock()
	sums := u.sums
	u.sums = make(map[usageKey]*store.Usage, len(sums))
	u.mu.Unlock()
	empty = true
	for _, one := range sums {
		if err := u.below.AddUsage(context.Background(), one); err != nil {
			u.log.Error("failed to store usage; will retry", "project", one.Project, "err", err)
			u.mu.Lock()
			u.sum(one)
			u.mu.Unlock()
			empty = false
		}
	}
	return empty
}
