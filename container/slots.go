package container

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// slots is a semaphore whose waiters give up with the cause of their context. With one
// slot it is a mutex that a caller can stop waiting for.
type slots struct{ sem *semaphore.Weighted }

func newSlots(n int) slots { return slots{semaphore.NewWeighted(int64(n))} }

// acquire waits for a slot. It returns why ctx ended if that comes first.
func (s slots) acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if s.sem.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// tryAcquire acquires a slot if one is free, and reports whether it did.
func (s slots) tryAcquire() bool { return s.sem.TryAcquire(1) }

func (s slots) release() { s.sem.Release(1) }
