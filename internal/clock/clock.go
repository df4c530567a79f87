// Package clock has the time as a part that is handed over: the system's, or in tests one that a test advances.
//
// A package that has a Clock reads the time and waits by it alone, because two clocks that disagree make its tests
// depend on the speed of the machine. Package archtest checks this.
package clock

import (
	"context"
	"time"
)

// A Clock tells the time and waits. It is safe for concurrent use.
type Clock interface {
	Now() time.Time
	Since(t time.Time) time.Duration
	After(d time.Duration) <-chan time.Time
	AfterFunc(d time.Duration, f func()) *Timer
	NewTicker(d time.Duration) *Ticker

	// WithTimeout is as context.WithTimeout.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)

	// WithTimeoutCause is as context.WithTimeoutCause.
	WithTimeoutCause(ctx context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc)
}

// A Timer calls a function once, as one of time.AfterFunc does.
type Timer struct {
	stop  func() bool
	reset func(d time.Duration) bool
}

// Stop prevents the call. It returns false if the call was made or stopped before.
func (t *Timer) Stop() bool { return t.stop() }

// Reset makes the call due after d. It returns whether it was due before.
func (t *Timer) Reset(d time.Duration) bool { return t.reset(d) }

// A Ticker sends the time on C at intervals. It drops ticks for a slow receiver.
type Ticker struct {
	C    <-chan time.Time
	stop func()
}

// Stop ends the ticks. It does not close C.
func (t *Ticker) Stop() { t.stop() }

// Sleep waits for d, or returns the error of ctx if that ends first.
func Sleep(ctx context.Context, c Clock, d time.Duration) error {
	over := make(chan struct{})
	t := c.AfterFunc(d, func() { close(over) })
	defer t.Stop()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// System is the clock of the operating system.
var System Clock = system{}

type system struct{}

func (system) Now() time.Time                         { return time.Now() }
func (system) Since(t time.Time) time.Duration        { return time.Since(t) }
func (system) After(d time.Duration) <-chan time.Time { return time.After(d) }

func (system) AfterFunc(d time.Duration, f func()) *Timer {
	t := time.AfterFunc(d, f)
	return &Timer{t.Stop, t.Reset}
}

func (system) NewTicker(d time.Duration) *Ticker {
	t := time.NewTicker(d)
	return &Ticker{t.C, t.Stop}
}

func (system) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

func (system) WithTimeoutCause(
	ctx context.Context, d time.Duration, cause error,
) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, cause)
}
