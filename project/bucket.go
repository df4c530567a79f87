package project

import (
	"math"
	"time"
)

// A bucket holds what may be used at once. It fills up within a minute, however
// little is left, and what has been used beyond it must fill up first.
type bucket struct {
	size float64
	left float64 // at the time; below 0 is a debt
	at   time.Time
}

// fill brings the bucket up to now. A new size takes effect at once: what is left
// grows or shrinks with it. The zero bucket is full.
func (b *bucket) fill(size int64, now time.Time) {
	if b.size == 0 { // it was no bucket, or held nothing
		*b = bucket{size: float64(size), left: float64(size), at: now}
		return
	}
	b.left += max(0, now.Sub(b.at).Minutes()) * b.size
	b.left = min(b.left, b.size) + float64(size) - b.size
	b.size, b.at = float64(size), now
}

// wait returns how long it takes until n may be used, 0 for now. It takes for ever
// if n is more than the bucket holds.
func (b *bucket) wait(n int64) time.Duration {
	switch {
	case float64(n) <= b.left:
		return 0
	case float64(n) > b.size:
		return math.MaxInt64
	}
	return minutes((float64(n) - b.left) / b.size)
}

// use takes n out, or puts -n back.
func (b *bucket) use(n int64) { b.left = min(b.left-float64(n), b.size) }

// rate is how the bucket is now, for the header of an answer.
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
