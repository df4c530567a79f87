// Package backoff waits between attempts.
package backoff

import (
	"context"
	"time"
)

// Sleep waits for d. It returns the cause of ctx if that ends first.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Delays are the delays between attempts. Each is twice the previous one, from First up to Max.
type Delays struct {
	First, Max time.Duration

	last time.Duration
}

// Next returns the next delay.
func (d *Delays) Next() time.Duration {
	d.last = min(max(2*d.last, d.First), d.Max)
	return d.last
}

// Reset makes Next start from First again, after a success.
func (d *Delays) Reset() { d.last = 0 }
