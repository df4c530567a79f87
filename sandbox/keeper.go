// Package sandbox keeps containers for tools: their life, limits, leases and files.
//
// A container is a row in the store and, while it runs, one sandbox of a driver.
// The row speaks first: it is saved before its sandbox is made and says the end
// before its sandbox is destroyed. What a crash leaves half done, the next Start
// puts right, in either direction; an interrupted start is made again (restart.go).
//
//	Create ─▶ starting ─▶ running ─▶ expired (idle, oom, killed, host, disk) ─▶ deleted
//
// With a pool, sandboxes are ready before there are rows for them (pool.go).
// Whoever uses a container holds it, which keeps it from expiring. Every death
// goes through bury (death.go). What comes out of a sandbox is not trusted.
package sandbox

import (
	"cmp"
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/audit"
	"github.com/berth-run/berth/sandbox/driver"
	"github.com/berth-run/berth/snapshot"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/volume"
)

// closeGrace is how long Close waits for sandboxes that are being started.
const closeGrace = 10 * time.Second

// errStopping is what users of a closed keeper get.
var errStopping = berth.Errorf(berth.CodeUnavailable, "The server is stopping.")

// A Store is what a Keeper needs of the database.
type Store interface {
	store.Containers
	store.ContainerFiles
	store.Objects
}

// Options are a Keeper's parts and bounds. Those without a default are needed.
type Options struct {
	Store  Store
	Driver driver.Driver

	// Template returns what a new sandbox starts from: the digest of the template
	// that has a name or a digest, "" for the default one, and its root file system
	// on the host. It is asked at each creation.
	Template func(ref string) (Template, error)

	// MayName returns an error for the client, as Template's of one that is not there,
	// unless a project may name a template so. Default: any may be named.
	MayName func(ctx context.Context, p berth.ProjectID, ref string) error

	// OpenFile opens an uploaded file, as *files.Service does. Its errors for the
	// client are *berth.Error.
	OpenFile func(ctx context.Context, p berth.ProjectID, id berth.FileID) (io.ReadCloser, *berth.File, error)

	Log *slog.Logger

	// Snapshots keeps what containers leave. Default: there are none.
	Snapshots *snapshot.Library

	Network NetworkOptions
	Seal    cipher.AEAD     // for secrets in the store; as seal.New returns it
	Volumes *volume.Library // nil is none; the driver needs to be able to mount them
	Audit   *audit.Log      // keeps what was done; nil is none

	// Limits of every sandbox; the memory is its container's own tier.
	Limits driver.Limits

	Pools []PoolOptions // sandboxes that are held ready; no two of one template and memory limit

	Observer Observer // default none

	// Quota returns how many containers a project may run at once, negative for any
	// number, or an error for the client if it may not start another. Default: any.
	Quota func(ctx context.Context, p berth.ProjectID) (most int, err error)

	// Room returns an error for the client while the host's volume has no space for
	// another sandbox or snapshot. Default: there is always space.
	Room func() error

	OnExpiry     berth.OnExpiry // of containers that say nothing; default delete
	SnapshotLife time.Duration  // of those that expiry leaves; default 30 days

	IdleMinutes    int // expires_after of containers that name none; default 20
	MaxIdleMinutes int // the most that expires_after may say; default a week
	MaxContainers  int // that run at once; default 1,000
	MaxFiles       int // of a container that are listed; default 10,000
	Starts         int // sandboxes that are started at once; default one for each CPU
}

// A Template is what sandboxes start from.
type Template struct {
	Digest string
	Rootfs string   // its root file system on the host
	Env    []string // KEY=value; what commands find unless their container says otherwise
}

// A Keeper keeps the containers of all projects that run on one driver. It is
// safe for concurrent use. Errors that a client may see are *berth.Error.
type Keeper struct {
	opts     Options
	now      func() time.Time
	pressure func() float64 // of the processors, 0 to 1
	starts   turns
	freezes  turns // snapshots that are made at once
	quiet    time.Duration
	pools    []*pool
	claimed  atomic.Int64 // when a sandbox was asked of the pools, the last time, in Unix nanoseconds

	life context.Context // of this process's work; ends with errStopping
	end  context.CancelCauseFunc

	mu         sync.Mutex
	sandboxes  map[berth.ContainerID]*sandbox // all of which something is left
	deaths     []time.Time                    // that were found lately
	closed     bool
	closing    chan struct{}  // closed when closed is set
	background sync.WaitGroup // of spawn
}

// NewKeeper returns a keeper. Start must follow before anything else is asked of it.
func NewKeeper(opts Options) (*Keeper, error) {
	if opts.Store == nil || opts.Driver == nil || opts.Template == nil || opts.OpenFile == nil || opts.Log == nil || opts.Seal == nil {
		return nil, errors.New("sandbox: Store, Driver, Template, OpenFile, Log and Seal are needed")
	}
	if opts.MayName == nil {
		opts.MayName = func(context.Context, berth.ProjectID, string) error { return nil }
	}
	if opts.Observer == nil {
		opts.Observer = noObserver{}
	}
	if opts.Quota == nil {
		opts.Quota = func(context.Context, berth.ProjectID) (int, error) { return -1, nil }
	}
	if opts.Room == nil {
		opts.Room = func() error { return nil }
	}
	opts.IdleMinutes = cmp.Or(opts.IdleMinutes, 20)
	opts.MaxIdleMinutes = cmp.Or(opts.MaxIdleMinutes, 7*24*60)
	opts.SnapshotLife = cmp.Or(opts.SnapshotLife, 30*24*time.Hour)
	opts.MaxContainers = cmp.Or(opts.MaxContainers, 1000)
	opts.MaxFiles = cmp.Or(opts.MaxFiles, 10_000)
	opts.Starts = cmp.Or(opts.Starts, runtime.NumCPU())
	if opts.IdleMinutes < 1 || opts.IdleMinutes > opts.MaxIdleMinutes {
		return nil, fmt.Errorf("sandbox: containers expire after %d minutes, which must be between 1 and %d", opts.IdleMinutes, opts.MaxIdleMinutes)
	}
	k := &Keeper{opts: opts, now: time.Now, pressure: cpuPressure, starts: make(turns, opts.Starts), freezes: make(turns, opts.Starts), quiet: quietTime,
		sandboxes: map[berth.ContainerID]*sandbox{}, closing: make(chan struct{})}
	var err error
	if k.pools, err = newPools(k, opts.Pools); err != nil {
		return nil, err
	}
	k.life, k.end = context.WithCancelCause(context.Background())
	return k, nil
}

// Close ends this process's work on the containers and leaves their sandboxes,
// with all that runs there, to the next Start.
func (k *Keeper) Close() error {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil
	}
	k.closed = true
	k.mu.Unlock()

	close(k.closing)
	done := make(chan struct{})
	go func() {
		k.background.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(closeGrace):
	}
	k.end(errStopping)
	<-done
	k.disconnect()
	return nil
}

// disconnect saves when containers were last used and ends the connections to
// their guests. It does not wait long for either.
func (k *Keeper) disconnect() {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	var clients sync.WaitGroup
	for _, s := range k.all() {
		k.saveActivity(ctx, s, s.lastActive(k.now()).Unix())
		clients.Go(func() { s.client.Close() })
	}
	done := make(chan struct{})
	go func() {
		clients.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// spawn runs f in the background. It reports false, and does not, once the
// keeper is closing.
func (k *Keeper) spawn(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	k.background.Go(f)
	return true
}

// enter takes a new sandbox into the books, unless there are limit already, or most
// of its project's. A negative most is any number.
func (k *Keeper) enter(s *sandbox, limit, most int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return errStopping
	}
	if len(k.sandboxes) >= limit {
		return berth.Errorf(berth.CodeRateLimited, "%d containers are running, as many as this server may run. Delete one, or wait until one expires.", len(k.sandboxes))
	}
	if most >= 0 {
		if n := k.running(s.project); n >= most {
			return &berth.Error{Code: berth.CodeRateLimited, Type: "requests", RetryAfter: 10 * time.Second,
				Message: fmt.Sprintf("Rate limit reached for project %s on containers: Limit %d, Used %d, Requested 1. Delete one, or wait until one expires.", s.project, most, n)}
		}
	}
	k.sandboxes[s.id] = s
	return nil
}

// running counts a project's sandboxes that live, or will. k.mu is held.
func (k *Keeper) running(p berth.ProjectID) int {
	n := 0
	for _, s := range k.sandboxes {
		if s.project == p && s.life.Err() == nil {
			n++
		}
	}
	return n
}

// leave takes a sandbox of which nothing is left out of the books.
func (k *Keeper) leave(s *sandbox) {
	k.unmounted(s)
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sandboxes, s.id)
}

// lookup returns the project's sandbox for a container, or nil.
func (k *Keeper) lookup(p berth.ProjectID, id berth.ContainerID) *sandbox {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.sandboxes[id]; s != nil && s.project == p {
		return s
	}
	return nil
}

func (k *Keeper) all() []*sandbox {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*sandbox, 0, len(k.sandboxes))
	for _, s := range k.sandboxes {
		all = append(all, s)
	}
	return all
}
