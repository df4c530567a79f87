package docker

import (
	"sync"
	"time"
)

// countShare limits the time that an engine spends on counting the files of a sandbox: after a
// count, the next one waits countShare times as long as the count took.
const countShare = 20

// disks caches the disk use of sandboxes.
type disks struct {
	mu     sync.Mutex
	counts map[string]count // by container
}

type count struct {
	bytes int64
	next  time.Time // when to count again
}

// last returns the last count, and whether a new one is due.
func (d *disks) last(container string) (bytes int64, due bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.counts[container]
	return c.bytes, !time.Now().Before(c.next)
}

// counted records a count that started at since.
func (d *disks) counted(container string, bytes int64, since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.counts == nil {
		d.counts = map[string]count{}
	}
	now := time.Now()
	d.counts[container] = count{bytes: bytes, next: now.Add(countShare * now.Sub(since))}
}

// forget removes a container from the cache.
func (d *disks) forget(container string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.counts, container)
}
