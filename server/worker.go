package server

import (
	"context"
	"sync"
	"time"
)

// startWorker calls work in the background: after a delay, and then at intervals. stop cancels the
// context of a running call and waits for it.
func startWorker(delay, interval time.Duration, work func(context.Context)) (stop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			work(ctx)
			timer.Reset(interval)
		}
	})
	return func(context.Context) error {
		cancel()
		wg.Wait()
		return nil
	}
}
