package container

import "context"

// turns lets as many through at once as its capacity says. Unlike a mutex, it can
// be given up waiting for.
type turns chan struct{}

// take waits for a turn. It returns why ctx ended if that comes first.
func (t turns) take(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turns) give() { <-t }
