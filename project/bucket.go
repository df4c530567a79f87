package project

import (
	"math"
	"time"
)

// A bucket is a token bucket that refills at its size per minute. Use beyond its content
// is a debt that the refill pays first.
type bucket struct {
	size float64
	left float64 // content at the time at; negative is a debt
	at   time.Time
}

// fill refills the bucket up to now. A new size takes effect at once: the content grows
// or shrinks by the difference. The zero bucket starts full.
func (b *bucket) fill(size int64, now time.Time) {
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
	return minutes((float64(n) - b.left) / b.size)
}

// use takes n out of the bucket. A negative n puts it back.
func (b *bucket) use(n int64) { b.left = min(b.left-float64(n), b.size) }

// rate returns the state of the bucket for the rate limit headers of an answer.
func (b *bucket) rate() *Rate {
	r := &Rate{Limit: int64(b.size), Remaining: int64(max(0, b.left))}
	if b.size > 0 {
		r.Reset = minutes((b.size - b.left) / b.size)
	}
	return r
}

func minutes(n float64) time.Duration {
	return time.Duration(math.Ceil(n*float64(time.Minute/time.Millisecond))) * time.Millisecond
}
