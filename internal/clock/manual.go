package clock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Manual is a Clock that only a test advances.
type Manual struct {
	mu      sync.Mutex
	now     time.Time
	alarms  []*alarm      // pending
	changed chan struct{} // closed when an alarm is set
}

// An alarm is pending while it is in Manual.alarms.
type alarm struct {
	at    time.Time
	wait  time.Duration // from when it was set
	every time.Duration // of a ticker, else 0
	ring  func(now time.Time)
}

// NewManual returns a Manual that shows now.
func NewManual(now time.Time) *Manual { return &Manual{now: now, changed: make(chan struct{})} }

// Now returns the time that the clock shows.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// Since returns how long ago t was.
func (m *Manual) Since(t time.Time) time.Duration { return m.Now().Sub(t) }

// Advance moves the time by d. Everything that becomes due runs in the order of its time, at its time; functions of
// timers have returned when Advance returns.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	end := m.now.Add(d)
	for {
		a := m.next(end)
		if a == nil {
			m.now = end
			m.mu.Unlock()
			return
		}
		if a.at.After(m.now) {
			m.now = a.at
		}
		if a.every > 0 {
			a.at = a.at.Add(a.every)
		} else {
			m.remove(a)
		}
		now := m.now
		m.mu.Unlock()
		a.ring(now) // without the lock, because it may set alarms
		m.mu.Lock()
	}
}

// next returns the first pending alarm that is due at end, or nil.
func (m *Manual) next(end time.Time) (first *alarm) {
	for _, a := range m.alarms {
		if !a.at.After(end) && (first == nil || a.at.Before(first.at)) {
			first = a
		}
	}
	return first
}

// Await waits until somebody waits for the duration d, or returns the error of ctx if that ends first.
func (m *Manual) Await(ctx context.Context, d time.Duration) error {
	for {
		m.mu.Lock()
		waits := slices.ContainsFunc(m.alarms, func(a *alarm) bool { return a.wait == d })
		changed := m.changed
		m.mu.Unlock()
		if waits {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// set makes an alarm due after d. One that is due already rings now.
func (m *Manual) set(a *alarm, d time.Duration) {
	m.mu.Lock()
	a.at, a.wait = m.now.Add(d), d
	now := m.now
	if d > 0 {
		m.alarms = append(m.alarms, a)
		close(m.changed)
		m.changed = make(chan struct{})
	}
	m.mu.Unlock()
	if d <= 0 {
		a.ring(now)
	}
}

// remove reports whether a was pending.
func (m *Manual) remove(a *alarm) bool {
	i := slices.Index(m.alarms, a)
	if i >= 0 {
		m.alarms = slices.Delete(m.alarms, i, i+1)
	}
	return i >= 0
}

func (m *Manual) stop(a *alarm) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.remove(a)
}

// After returns a channel that receives the time after d.
func (m *Manual) After(d time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	m.set(&alarm{ring: func(now time.Time) { c <- now }}, d)
	return c
}

// AfterFunc calls f after d, in the goroutine that advances the clock.
func (m *Manual) AfterFunc(d time.Duration, f func()) *Timer {
	a := &alarm{ring: func(time.Time) { f() }}
	m.set(a, d)
	return &Timer{stop: func() bool { return m.stop(a) }, reset: func(d time.Duration) bool {
		was := m.stop(a)
		m.set(a, d)
		return was
	}}
}

// NewTicker returns a Ticker with the interval d, which must be positive.
func (m *Manual) NewTicker(d time.Duration) *Ticker {
	c := make(chan time.Time, 1)
	a := &alarm{every: d, ring: func(now time.Time) {
		select {
		case c <- now:
		default:
		}
	}}
	m.set(a, d)
	return &Ticker{C: c, stop: func() { m.stop(a) }}
}

// WithTimeout returns a context that ends after d.
func (m *Manual) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return m.WithTimeoutCause(ctx, d, nil)
}

// WithTimeoutCause is WithTimeout with a cause for the end after d.
func (m *Manual) WithTimeoutCause(
	ctx context.Context, d time.Duration, cause error,
) (context.Context, context.CancelFunc) {
	if cause == nil {
		cause = context.DeadlineExceeded
	}
	inner, cancel := context.WithCancelCause(ctx)
	t := &timeout{Context: inner, done: make(chan struct{})}
	context.AfterFunc(inner, func() { t.end(inner.Err()) })
	timer := m.AfterFunc(d, func() {
		t.end(context.DeadlineExceeded)
		cancel(cause)
	})
	return t, func() {
		timer.Stop()
		t.end(context.Canceled)
		cancel(context.Canceled)
	}
}

// A timeout is a context that ends by a Manual. Its Deadline is that of its parent, because others compare a deadline
// with the time of the system.
type timeout struct {
	context.Context // its parent, which ends with it
	done            chan struct{}

	mu  sync.Mutex
	err error
}

func (t *timeout) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
		close(t.done)
	}
}

// Done returns a channel that is closed when the context has ended.
func (t *timeout) Done() <-chan struct{} { return t.done }

// Err returns nil until the context has ended.
func (t *timeout) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
