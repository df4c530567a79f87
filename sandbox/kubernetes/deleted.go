package kubernetes

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"sync"
	"time"
)

// maxDeleted bounds the recorded ends of Pods that something other than the driver deleted.
const maxDeleted = 10_000

// expectedFor is how long after the driver deleted a Pod the cluster may report it.
const expectedFor = 10 * time.Minute

// deletions records why Pods were deleted, because the cluster forgets it. It is safe for concurrent
// use, and its zero value is empty.
type deletions struct {
	mu       sync.Mutex
	ends     map[string]end       // by name
	expected map[string]time.Time // when the driver deleted a Pod, by uid
}

// expect announces that the driver deletes a Pod.
func (d *deletions) expect(uid string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(d.expected, func(_ string, at time.Time) bool { return now.Sub(at) > expectedFor })
	if d.expected == nil {
		d.expected = map[string]time.Time{}
	}
	d.expected[uid] = now
}

// forget removes the end of a Pod.
func (d *deletions) forget(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.ends, name)
}

// add records the end of a Pod, unless the driver deleted it.
func (d *deletions) add(name, uid string, e end) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ours := d.expected[uid]; ours || len(d.ends) >= maxDeleted {
		return
	}
	if d.ends == nil {
		d.ends = map[string]end{}
	}
	d.ends[name] = e
}

// end returns the recorded end of a Pod.
func (d *deletions) end(name string) (end, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.ends[name]
	return e, ok
}

// watch records the ends of deleted Pods until ctx ends.
func (d *Driver) watch(ctx context.Context) {
	// Pods of other servers are watched as well: one that another server claims leaves a selection
	// by server like one that is deleted.
	all := d.names.selectorOfAll(kindSandbox)
	var version string
	err := errors.New("there is no list yet")
	for pause := minPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		began := time.Now()
		if err != nil {
			_, version, err = d.client.listPods(ctx, all)
		}
		if err == nil {
			err = d.client.watchPods(ctx, url.Values{"labelSelector": {all}, "allowWatchBookmarks": {"true"}}, version,
				func(p *pod, gone bool) bool {
					version = p.Metadata.ResourceVersion
					if gone && isName(p.Metadata.Name) && d.names.has(&p.Metadata) && !replaced(p) {
						d.deleted.add(p.Metadata.Name, p.Metadata.UID, endOfDeleted(p, time.Now()))
					}
					return false
				})
		}
		if errors.Is(err, errWatchEnded) {
			err = nil
		} else if ctx.Err() == nil {
			d.log.Debug("kubernetes: failed to watch Pods", "err", err)
		}
		if time.Since(began) > maxPause {
			pause = minPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}
