package kubernetes

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/berth-run/berth/sandbox"
)

// usageTime bounds the reading of a sandbox's resource use.
const usageTime = 10 * time.Second

// usageLife is how long a reading is returned again: each one starts a process in the sandbox, and
// the server asks for the state of all sandboxes every few seconds.
const usageLife = 30 * time.Second

// A reading is the resource use of a sandbox.
type reading struct {
	CPU                      time.Duration
	Memory, MemoryPeak, PIDs int64

	at time.Time
}

// usages caches readings by Pod. It is safe for concurrent use, and its zero value is empty.
type usages struct {
	mu    sync.Mutex
	last  map[string]reading
	fresh bool // for tests: nothing is cached
}

func (u *usages) get(name string) (reading, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r := u.last[name]
	return r, !u.fresh && !r.at.IsZero() && time.Since(r.at) < usageLife
}

func (u *usages) set(name string, r reading) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil {
		u.last = map[string]reading{}
	}
	u.last[name] = r
}

func (u *usages) forget(name string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.last, name)
}

// maxUsage bounds the answer, in bytes.
const maxUsage = 4 << 10

// add adds the resource use of a sandbox. The nodes' own figures need a permission with which
// one could run commands in every Pod, so the guest program reads the control group's. What it
// cannot read stays zero.
func (u *usages) add(ctx context.Context, c *client, name string, stats *sandbox.Stats) {
	r, ok := u.get(name)
	if !ok {
		r = readUsage(ctx, c, name)
		u.set(name, r)
	}
	stats.CPU, stats.Memory, stats.MemoryPeak, stats.PIDs = max(r.CPU, 0), max(r.Memory, 0), max(r.MemoryPeak, 0),
		int(max(r.PIDs, 0))
}

// readUsage starts the program that reads the figures.
func readUsage(ctx context.Context, c *client, name string) reading {
	r := reading{at: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, usageTime)
	defer cancel()
	s, err := c.exec(ctx, name, guestPath, "usage")
	if err != nil {
		return r
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	raw, _ := io.ReadAll(io.LimitReader(s, maxUsage))
	if json.Unmarshal(raw, &r) != nil {
		return reading{at: r.at}
	}
	return r
}
