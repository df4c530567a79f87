package project

import (
	"math"
	"time"
)

// A bucket is a token bucket that refills at its size per minute. Use beyond its content
// is a debt that the refill pays first.
//
// In a cluster, the bucket that refills is in the store. This one has what was drawn from it, and
// an estimate of the rest there.
type bucket struct {
	size float64
	left float64 // content at the time at; negative is a debt
	at   time.Time

	shared bool
	pool   float64   // if shared, what was left in the store at the time at
	drawn  time.Time // if shared, when left was last used or added to
}

// fill refills the bucket up to now. A new size takes effect immediately: the content grows
// or shrinks by the difference. The zero bucket starts full.
func (b *bucket) fill(size int64, now time.Time) {
	if b.shared {
		b.pool += max(0, now.Sub(b.at).Minutes()) * b.size
		b.pool = min(b.pool, b.size) + float64(size) - b.size
		b.size, b.at = float64(size), now
		return
	}
	if b.size == 0 { // new, or without a limit until now
		*b = bucket{size: float64(size), left: float64(size), at: now}
		return
	}
	b.left += max(0, now.Sub(b.at).Minutes()) * b.size
	b.left = min(b.left, b.size) + float64(size) - b.size
	b.size, b.at = float64(size), now
}

// wait returns the time until n may be used. It returns math.MaxInt64 if n exceeds the
// size of the bucket.
func (b *bucket) wait(n int64) time.Duration {
	switch {
	case float64(n) <= b.left:
		return 0
	case float64(n) > b.size:
		return math.MaxInt64
	}
	return max(minutes((float64(n)-b.content())/b.size), time.Millisecond)
}

// spent reports whether the store had so little a moment ago that drawing n would be useless.
func (b *bucket) spent(n int64) bool {
	return b.shared && time.Since(b.drawn) < settleInterval && b.size > 0 && float64(n) > b.content()
}

// content returns the remaining tokens, here and in the store.
func (b *bucket) content() float64 { return min(b.left+b.pool, b.size) }

// use takes n out of the bucket. A negative n puts it back.
func (b *bucket) use(n int64) { b.left = min(b.left-float64(n), b.size) }

// rate returns the state of the bucket for the rate limit headers of an answer.
func (b *bucket) rate() *Rate {
	r := &Rate{Limit: int64(b.size), Remaining: int64(max(0, b.content()))}
	if b.size > 0 {
		r.Reset = minutes((b.size - b.content()) / b.size)
	}
	return r
}

func minutes(n float64) time.Duration {
	return time.Duration(math.Ceil(n*float64(time.Minute/time.Millisecond))) * time.Millisecond
}
