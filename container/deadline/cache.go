package deadline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

// reload is how often Run reads the sandboxes of other servers, and tries again what failed.
const reload = time.Minute

// A Sandbox is what requests and the deadlines need of a sandbox.
type Sandbox struct {
	Project  berth.ProjectID
	Deadline int64     // Unix seconds; never if it is paused
	at       time.Time // when it was set
	Ports    Ports
	User     string // of commands that name none; empty is the guest's
	Dir      string // of commands that name none; empty is the user's home
}

// live returns the cached record.
func (rec *Record) live(p berth.ProjectID, at time.Time) Sandbox {
	return Sandbox{Project: p, Deadline: rec.Deadline, at: at, Ports: rec.Ports, User: rec.User, Dir: rec.Dir}
}

// A Cache has the sandboxes that this server knows.
type Cache struct {
	*Options
	events *Events

	mu      sync.Mutex
	live    map[berth.ContainerID]Sandbox
	loaded  time.Time     // when live was read from the store
	changed chan struct{} // has a value when a deadline was set or has passed, or a container has ended

	discovery discovery
}

func newCache(opts *Options, events *Events) *Cache {
	return &Cache{Options: opts, events: events, live: map[berth.ContainerID]Sandbox{}, changed: make(chan struct{}, 1),
		discovery: newDiscovery()}
}

// Requests without proof that name an unknown sandbox wait discoverInterval, then share one read of the list of
// sandboxes.
const discoverInterval = time.Second

// A discovery finds sandboxes that other servers of the cluster have created since the last load.
type discovery struct {
	turn chan struct{} // has a value while a request reads the list
	at   time.Time     // when the last read began; guarded by turn
}

func newDiscovery() discovery { return discovery{turn: make(chan struct{}, 1)} }

// Find returns a sandbox that runs or is paused. proved reports whether the client has proved that it knows the
// sandbox. Without other servers, an unknown id does not cause a read of the store: such requests need no key. With
// them, it waits for one that serves all who wait, once a second.
func (d *Cache) Find(ctx context.Context, id berth.ContainerID, proved func() bool) (Sandbox, bool, error) {
	s, ok, loaded := d.known(id)
	if ok {
		return s, ok, nil
	}
	var err error
	switch {
	case !loaded:
		err = d.load(ctx)
	case d.Placement.Alone():
		return Sandbox{}, false, nil
	default:
		err = d.Discover(ctx, proved())
	}
	if err != nil {
		return Sandbox{}, false, err
	}
	s, ok, _ = d.known(id)
	return s, ok, nil
}

func (d *Cache) known(id berth.ContainerID) (s Sandbox, ok, loaded bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok = d.live[id]
	return s, ok, !d.loaded.IsZero()
}

// Discover reads the sandboxes that this server does not know yet: immediately if now is set, because the client has
// proved that it knows a sandbox.
func (d *Cache) Discover(ctx context.Context, now bool) error {
	arrived := d.Clock.Now()
	if !now {
		select {
		case <-d.Clock.After(discoverInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case d.discovery.turn <- struct{}{}:
		defer func() { <-d.discovery.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if d.discovery.at.After(arrived) {
		return nil // another request has done it
	}
	d.discovery.at = d.Clock.Now()
	refs, err := d.Objects.ExpiredObjects(ctx, store.KindSandbox, time.Unix(never, 0).Add(time.Second), most)
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	for _, ref := range refs {
		id := berth.ContainerID(ref.ID)
		if _, ok, _ := d.known(id); ok {
			continue
		}
		o, err := d.Objects.GetObject(ctx, ref.Project, ref.ObjectKey)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read sandbox: %w", err)
		}
		rec, err := decode(o)
		if err != nil {
			return err
		}
		if !rec.Over(d.Clock.Now()) {
			d.watch(ref.Project, id, rec)
		}
	}
	return nil
}

// All returns the sandboxes that this server knows.
func (d *Cache) All() map[berth.ContainerID]Sandbox {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.live)
}

// Running returns the number of a project's sandboxes that run.
func (d *Cache) Running(p berth.ProjectID) int {
	now := d.Clock.Now().Unix()
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, s := range d.live {
		if s.Project == p && s.Deadline > now && s.Deadline != never {
			n++
		}
	}
	return n
}

// watch caches what the data plane and the deadlines need of a sandbox.
func (d *Cache) watch(p berth.ProjectID, id berth.ContainerID, rec *Record) {
	d.mu.Lock()
	d.live[id] = rec.live(p, d.Clock.Now())
	d.mu.Unlock()
	d.wake()
}

// wake makes Run look for due records.
func (d *Cache) wake() {
	select {
	case d.changed <- struct{}{}:
	default: // Run has not read the last change yet
	}
}

// most is how many sandboxes of all projects are read from the store.
const most = 100_000

// load reads all sandboxes from the store.
func (d *Cache) load(ctx context.Context) error {
	began := d.Clock.Now()
	refs, err := d.Objects.ExpiredObjects(ctx, store.KindSandbox, time.Unix(never, 0).Add(time.Second), most)
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	all := make(map[berth.ContainerID]Sandbox, len(refs))
	for _, ref := range refs {
		id := berth.ContainerID(ref.ID)
		o, err := d.Objects.GetObject(ctx, ref.Project, ref.ObjectKey)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read sandbox: %w", err)
		}
		rec, err := decode(o)
		if err != nil {
			return err
		}
		all[id] = rec.live(ref.Project, began)
		d.events.publish(ctx, ref.Project, id, rec) // what a crash or a failure has left
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, s := range d.live {
		if s.at.After(began) {
			all[id] = s // it was set while the store was read
		}
	}
	d.live, d.loaded = all, d.Clock.Now()
	return nil
}

// drop removes a sandbox from the cache.
func (d *Cache) drop(id berth.ContainerID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.live, id)
}

// paused reports whether a sandbox is paused.
func (d *Cache) paused(id berth.ContainerID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.live[id].Deadline == never
}

// takeDue removes the sandboxes that are due from the cache and returns them, with the time until the next deadline.
// The next load finds a sandbox whose end fails.
func (d *Cache) takeDue(now time.Time) (due map[berth.ContainerID]Sandbox, next time.Duration) {
	due, next = map[berth.ContainerID]Sandbox{}, reload
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, s := range d.live {
		if left := time.Unix(s.Deadline, 0).Sub(now); left > 0 {
			next = min(next, left)
		} else {
			due[id] = s
			delete(d.live, id)
		}
	}
	return due, next
}
