package project

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// usePrecision is how late the time of the last use of a key may be: a key in use is written once in this time.
const usePrecision = 5 * time.Minute

// Uses remember when keys were used until Save, so that no request writes. They are safe for concurrent use.
type Uses struct {
	keys store.Keys
	now  func() time.Time

	mu   sync.Mutex
	used map[berth.KeyID]int64 // not saved yet
}

// NewUses returns the uses of keys of a store.
func NewUses(keys store.Keys, now func() time.Time) *Uses {
	return &Uses{keys: keys, now: now, used: map[berth.KeyID]int64{}}
}

// Used notes a use of a key, as it was read from the store.
func (u *Uses) Used(k *berth.Key) {
	now := u.now().Unix()
	if now-k.LastUsedAt < int64(usePrecision/time.Second) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used[k.ID] = now
}

// Save saves the uses since the last call. It retries those that it cannot save in its next call.
func (u *Uses) Save(ctx context.Context) error {
	u.mu.Lock()
	used := u.used
	u.used = map[berth.KeyID]int64{}
	u.mu.Unlock()
	if len(used) == 0 {
		return nil
	}
	err := u.keys.UseKeys(ctx, used)
	if err == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, at := range used {
		u.used[id] = max(at, u.used[id])
	}
	return fmt.Errorf("save uses of keys: %w", err)
}
