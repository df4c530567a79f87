package server

import (
	"context"
	"sync"
	"time"
)

// startWorker calls work in the background: after a delay, and then at intervals. stop cancels the
// context of a running call and waits for it.
func startWorker(delay, interval time.Duration, work func(context.Context)) (stop func(context.Context) error) {
	return inBackground(func(ctx context.Context) { repeat(ctx, delay, interval, work) })
}

// repeat calls work after a delay, and then at intervals, until ctx ends.
func repeat(ctx context.Context, delay, interval time.Duration, work func(context.Context)) {
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
}

// inBackground calls run in the background. stop cancels its context and waits for it.
func inBackground(run func(context.Context)) (stop func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { run(ctx) })
	return func(context.Context) error {
		cancel()
		wg.Wait()
		return nil
	}
}

// startOnce is inBackground on one server of the cluster at a time. name is unique among the works.
func (b *base) startOnce(name string, run func(context.Context)) (stop func(context.Context) error) {
	return b.cluster.Singleton(name, run)
}

// startOneWorker is startWorker on one server of the cluster at a time.
func (b *base) startOneWorker(name string, delay, interval time.Duration,
	work func(context.Context)) (stop func(context.Context) error) {
	return b.startOnce(name, func(ctx context.Context) { repeat(ctx, delay, interval, work) })
}
