// Package container runs containers for tools: their life, limits, leases and files.
//
// A container is a row in the store and, while it runs, one sandbox of a driver.
// The row comes first: it is saved before its sandbox is made, and its end is saved
// before its sandbox is destroyed. What a crash leaves half done, the next Start
// completes, in either direction; an interrupted start is repeated (restart.go).
//
//	Create ─▶ starting ─▶ running ─▶ expired (idle, oom, killed, host, disk) ─▶ deleted
//
// With a pool, sandboxes are ready before there are rows for them (pool.go). A caller
// that uses a container holds it, so that it does not expire (lease.go). Every
// container ends through deaths.end (death.go). Data from a sandbox is not trusted.
package container

import (
	"context"
	"sync"
	"time"

	"github.com/berth-run/berth"
)

// closeGrace is how long Close waits for sandboxes that are being started.
const closeGrace = 10 * time.Second

// errStopping is the error of calls after Close.
var errStopping = berth.Errorf(berth.CodeUnavailable, "The server is stopping.")

// A Service manages the containers of all projects that run on one driver. It is
// safe for concurrent use. Errors that a client may see are *berth.Error.
//
// Its work is done by parts, each of which is given the parts that it needs.
type Service struct {
	opts      *Options
	work      *workers
	index     *index
	trail     *trail
	networks  *networks
	records   *startRecords
	volumes   *volumes
	deaths    *deaths
	leases    *leases
	meter     *meter
	files     *Files
	logs      *Logs
	access    *Access
	snapshots *snapshots
	planner   *planner
	starter   *starter
	pools     *pools
	sweeper   *sweeper
}

// New returns a Service. Start or End must be called first.
func New(options Options) (*Service, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	opts, work := &options, newWorkers()
	k := &Service{opts: opts, work: work}
	k.volumes = &volumes{opts, work}
	k.index = &index{work: work, volumes: k.volumes, instances: map[berth.ContainerID]*instance{}}
	k.trail = &trail{opts}
	k.networks = &networks{opts, k.trail}
	k.records = &startRecords{opts}
	k.deaths = &deaths{opts: opts, work: work, index: k.index, trail: k.trail, networks: k.networks, records: k.records}
	k.leases = &leases{opts, work, k.index, k.deaths}
	k.meter = &meter{opts, k.index}
	k.files = &Files{opts, work, k.leases, k.meter}
	k.logs = &Logs{opts, k.index}
	k.access = &Access{opts, work, k.leases, k.logs, k.files}
	k.snapshots = &snapshots{opts: opts, work: work, leases: k.leases, deaths: k.deaths, slots: newSlots(opts.Bounds.Starts), quiet: quietTime}
	k.planner = &planner{opts, k.networks, k.volumes, k.snapshots, k.files}
	k.starter = &starter{opts: opts, work: work, deaths: k.deaths, networks: k.networks, records: k.records, volumes: k.volumes,
		files: k.files, snapshots: k.snapshots, slots: newSlots(opts.Bounds.Starts)}
	if k.pools, err = newPools(opts, work, k.index, k.leases, k.deaths, k.starter); err != nil {
		return nil, err
	}
	k.sweeper = &sweeper{opts, work, k.index, k.leases, k.deaths, k.snapshots, k.volumes, k.pools}
	return k, nil
}

// Files returns the files in containers.
func (k *Service) Files() *Files { return k.files }

// Logs returns the command logs of containers.
func (k *Service) Logs() *Logs { return k.logs }

// Access returns the ways to run something in a container.
func (k *Service) Access() *Access { return k.access }

// Close ends this process's work on the containers and leaves their sandboxes,
// with all that runs in them, to the next Start.
func (k *Service) Close() error {
	if !k.work.refuse() {
		return nil
	}
	k.work.stop(closeGrace)
	k.disconnect()
	return nil
}

// disconnect saves when containers were last used and ends the connections to
// their guests. It does not wait long for either.
func (k *Service) disconnect() {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	var clients sync.WaitGroup
	for _, s := range k.index.all() {
		k.sweeper.saveActivity(ctx, s, s.lastActive(k.opts.now()).Unix())
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
