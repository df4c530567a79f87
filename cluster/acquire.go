package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/store"
)

// acquirePause is how long Acquire waits before it tries again.
const acquirePause = 100 * time.Millisecond

// Acquire waits until no other server has the lock name, and takes it. It renews the lock until
// the caller calls release. If this server dies, the lock ends with its lease. Callers on one
// server do not exclude each other. A server that cannot reach the store for as long as the lease
// loses the lock without notice.
func (c *Cluster) Acquire(ctx context.Context, name string) (release func(), err error) {
	for {
		err := c.Store.Lock(ctx, name, c.Self.ID, c.Lease)
		if err == nil {
			break
		}
		if !errors.Is(err, store.ErrConflict) {
			return nil, fmt.Errorf("acquire lock: %w", err)
		}
		if err := backoff.Sleep(ctx, acquirePause); err != nil {
			return nil, err
		}
	}
	released, renewed := make(chan struct{}), make(chan struct{})
	lasting := context.WithoutCancel(ctx)
	go func() {
		defer close(renewed)
		c.renewLock(lasting, name, released)
	}()
	return func() {
		close(released)
		<-renewed
		c.unlock(lasting, name)
	}, nil
}

// unlock releases a lock.
func (c *Cluster) unlock(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Lease/3)
	defer cancel()
	if err := c.Store.Unlock(ctx, name, c.Self.ID); err != nil {
		c.Log.Warn("failed to release a lock; its lease ends by itself", "lock", name, "err", err)
	}
}
