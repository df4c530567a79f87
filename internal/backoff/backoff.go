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

// Delays are the delays between attempts: First, and twice the last one each time, up to
// Max. The zero value of the rest starts from First.
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
