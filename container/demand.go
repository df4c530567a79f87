package container

import "time"

// demandPeriod is the time after which a peak of demand is forgotten, at the earliest. The latest is twice that.
const demandPeriod = 30 * time.Minute

// minSpare is the share of the machine's memory that must be free for a pool to grow beyond its configured size.
const minSpare = 0.25

// A demand is how many sandboxes a pool lacked: claims that it has not yet replaced, since it was last full. Its peak
// is the size with which the pool would have missed none. The zero value is no demand; the pool's lock guards it.
type demand struct {
	lag     int
	peaks   [2]int // of this period and the one before
	started time.Time
}

// claimed counts a claim, whether or not a sandbox was ready.
func (d *demand) claimed(now time.Time) {
	d.turn(now)
	d.lag++
	d.peaks[0] = max(d.peaks[0], d.lag)
}

// returned takes back a claim whose container was not made.
func (d *demand) returned() { d.lag = max(0, d.lag-1) }

// added counts a sandbox that was added to the pool.
func (d *demand) added() { d.lag = max(0, d.lag-1) }

// met says that the pool has all sandboxes that it wants.
func (d *demand) met() { d.lag = 0 }

// peak returns the most that was lacking lately.
func (d *demand) peak(now time.Time) int {
	d.turn(now)
	return max(d.peaks[0], d.peaks[1])
}

// turn begins a period if the present one is over.
func (d *demand) turn(now time.Time) {
	switch over := now.Sub(d.started); {
	case over >= 2*demandPeriod:
		d.peaks, d.started = [2]int{d.lag, 0}, now
	case over >= demandPeriod:
		d.peaks, d.started = [2]int{d.lag, d.peaks[0]}, now
	}
}

// wantLocked returns how many sandboxes the pool is to hold now: its configured size, or as many as the latest burst
// asked for while memory is to spare. p.mu is held.
func (p *pool) wantLocked(now time.Time) int {
	want := min(p.demand.peak(now), p.Most)
	if want <= p.Size {
		return p.Size
	}
	available, total := p.group.opts.Memory()
	switch spare := float64(available) - minSpare*float64(total); {
	case total <= 0 || spare < -minSpare/2*float64(total): // unknown, or the machine needs its memory
		return p.Size
	case spare < 0:
		return max(p.Size, min(want, len(p.ready)))
	}
	return want
}
