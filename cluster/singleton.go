package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/berth-run/berth/internal/backoff"
	"github.com/berth-run/berth/store"
)

// Singleton runs work on one server at a time, on that which holds the lock name, until stop is
// called, which waits for the work, or until Close. The context of work ends when the server
// cannot renew the lock before its lease ends, so another server may already run the work when
// work returns late. work must therefore be safe to repeat.
func (c *Cluster) Singleton(name string, work func(ctx context.Context)) (stop func(context.Context) error) {
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan struct{})
	c.wg.Go(func() {
		defer close(done)
		for {
			err := c.Store.Lock(ctx, name, c.Self.ID, c.Lease)
			switch {
			case err == nil:
				c.Log.Debug("acquired the lock for work of the whole cluster", "work", name)
				c.hold(ctx, name, work)
			case !errors.Is(err, store.ErrConflict) && ctx.Err() == nil:
				c.Log.Error("failed to acquire a lock; will retry", "lock", name, "err", err)
			}
			if backoff.Sleep(ctx, c.Lease/3) != nil {
				return
			}
		}
	})
	return func(context.Context) error {
		cancel()
		<-done
		return nil
	}
}

// hold runs work while it renews its lock.
func (c *Cluster) hold(ctx context.Context, name string, work func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		work(ctx)
	}()
	c.renewLock(ctx, name, done)
	cancel()
	<-done
	c.unlock(ctx, name)
}

// renewLock renews a lock until ctx or the work ends, or the lock may have been lost.
func (c *Cluster) renewLock(ctx context.Context, name string, done <-chan struct{}) {
	tick := time.NewTicker(c.Lease / 3)
	defer tick.Stop()
	for until := time.Now().Add(c.Lease); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-done:
			return
		}
		before := time.Now()
		if before.After(until) {
			return
		}
		switch err := c.Store.Lock(ctx, name, c.Self.ID, c.Lease); {
		case err == nil:
			until = before.Add(c.Lease)
		case errors.Is(err, store.ErrConflict):
			return
		case ctx.Err() == nil:
			c.Log.Error("failed to renew a lock", "lock", name, "err", err)
		}
	}
}
