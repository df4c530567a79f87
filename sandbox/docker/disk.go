package docker

import (
	"sync"
	"time"
)

// countShare is the part of the time in which an engine may count the files of a
// sandbox: after a count, the next one waits countShare times as long as that took.
const countShare = 20

// disks holds what was last counted on the disks of sandboxes.
type disks struct {
	mu     sync.Mutex
	counts map[string]count // by container
}

type count struct {
	bytes int64
	next  time.Time // when to count again
}

// last returns what was counted last, and whether it is to be counted again.
func (d *disks) last(container string) (bytes int64, due bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.counts[container]
	return c.bytes, !time.Now().Before(c.next)
}

// counted keeps what was counted since a time.
func (d *disks) counted(container string, bytes int64, since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counts == nil {
		d.counts = map[string]count{}
	}
	now := time.Now()
	d.counts[container] = count{bytes: bytes, next: now.Add(countShare * now.Sub(since))}
}

// forget forgets a container that is gone.
func (d *disks) forget(container string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.counts, container)
}
