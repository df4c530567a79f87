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

// A Service manages the containers of all projects that run on one driver. It is safe for
// concurrent use. Errors that a client may see are *berth.Error.
//
// Its work is divided among parts. Each gets the parts that it needs.
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
	prober    *prober
	pauser    *pauser
	files     *Files
	logs      *Logs
	access    *Access
	snapshots *Snapshots
	planner   *planner
	starter   *starter
	pools     *pools
	sweeper   *sweeper
	creator   *creator
	provider  *Provider
	adopter   *adopter
	relief    *relief
	forker    *Forker
}

// New returns a Service. Start or End must be called first.
func New(options Options) (*Service, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	opts, work := &options, newWorkers(options.clock)
	svc := &Service{opts: opts, work: work}
	svc.volumes = &volumes{opts, work}
	svc.index = &index{work: work, volumes: svc.volumes, instances: map[berth.ContainerID]*instance{}}
	svc.trail = &trail{opts}
	svc.networks = &networks{opts: opts, trail: svc.trail}
	svc.records = &startRecords{opts}
	svc.deaths = &deaths{opts: opts, work: work, index: svc.index, trail: svc.trail, networks: svc.networks,
		records: svc.records}
	svc.meter = &meter{opts, svc.index}
	svc.prober = &prober{opts, work}
	svc.pauser = &pauser{opts, work, svc.deaths, svc.meter}
	svc.networks.neighbours = &neighbours{opts, svc.index, svc.pauser, svc.trail}
	svc.leases = &leases{opts, work, svc.index, svc.deaths, svc.prober, svc.pauser,
		&reservations{opts, svc.index, svc.deaths}}
	svc.files = &Files{opts, work, svc.leases, svc.meter}
	svc.logs = &Logs{opts, svc.index}
	svc.access = &Access{opts: opts, work: work, leases: svc.leases, logs: svc.logs, files: svc.files, index: svc.index,
		trail: svc.trail, neighbours: svc.networks.neighbours}
	svc.snapshots = &Snapshots{opts: opts, work: work, leases: svc.leases, deaths: svc.deaths,
		slots: newSlots(opts.Bounds.Starts), stall: stallTimeout}
	svc.planner = &planner{opts, svc.networks, svc.volumes, svc.snapshots, svc.files}
	svc.starter = &starter{opts: opts, work: work, deaths: svc.deaths, networks: svc.networks, records: svc.records,
		volumes: svc.volumes,
		files:   svc.files, snapshots: svc.snapshots, slots: newSlots(opts.Bounds.Starts)}
	if svc.pools, err = newPools(opts, work, svc.index, svc.leases, svc.deaths, svc.starter); err != nil {
		return nil, err
	}
	svc.creator = &creator{opts, work, svc.index, svc.trail, svc.networks, svc.records, svc.volumes, svc.deaths,
		svc.leases, svc.starter, svc.pools}
	svc.forker = &Forker{opts, work, svc.leases, svc.deaths, svc.snapshots, svc.planner, svc.creator, svc.Delete}
	svc.provider = &Provider{opts, svc.index, svc.leases, svc.files, svc.snapshots, svc.planner, svc.creator}
	svc.adopter = &adopter{opts, svc.index, svc.networks, svc.records, svc.volumes, svc.deaths, svc.leases, svc.logs,
		svc.access, svc.starter}
	svc.relief = &relief{opts, svc.index, svc.meter, svc.deaths}
	svc.sweeper = &sweeper{opts, work, svc.index, svc.prober, svc.pauser,
		&expirer{opts, work, svc.deaths, svc.pauser, svc.snapshots, svc.networks.neighbours}, svc.deaths, svc.snapshots,
		svc.volumes, svc.pools}
	return svc, nil
}

// Files returns the files in containers.
func (svc *Service) Files() *Files { return svc.files }

// Logs returns the command logs of containers.
func (svc *Service) Logs() *Logs { return svc.logs }

// Snapshots returns the snapshots of containers.
func (svc *Service) Snapshots() *Snapshots { return svc.snapshots }

// Provider returns the containers of responses.
func (svc *Service) Provider() *Provider { return svc.provider }

// Access returns the ways to run something in a container.
func (svc *Service) Access() *Access { return svc.access }

// Relieve ends the containers that fill the host's volume, with the reason "disk", until it has
// enough space. It ends those whose disks grow, the fastest first, or, if none grows, the
// largest ones if their end frees enough. need returns how many bytes the volume lacks now.
// Relieve returns true if it ended a container and its space is free. Pausing would not help:
// any use would resume the container, and its space would stay in use.
//
// If the driver is a sandbox.Freezer, all other sandboxes are frozen for that time: they would use
// up the freed space before an end is saved. Until then nothing is written.
func (svc *Service) Relieve(ctx context.Context, need func() int64) bool {
	return svc.relief.run(ctx, need)
}

// Close ends this process's work on the containers. Their sandboxes, with all processes in
// them, stay for the next Start.
func (svc *Service) Close() error {
	if !svc.work.refuse() {
		return nil
	}
	svc.work.stop(closeGrace)
	svc.disconnect()
	return nil
}

// disconnect saves when containers were last used and ends the connections to their guests. It
// bounds the wait for both.
func (svc *Service) disconnect() {
	ctx, cancel := svc.opts.clock.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	var clients sync.WaitGroup
	for _, s := range svc.index.all() {
		svc.sweeper.saveActivity(ctx, s, s.lastActive(svc.opts.clock.Now()).Unix())
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

// Pools returns the figures of the pools since New.
func (svc *Service) Pools() []PoolStats {
	all := make([]PoolStats, len(svc.pools.all))
	for i, p := range svc.pools.all {
		all[i] = p.figures()
	}
	return all
}

// Templates returns the digests of the templates of all sandboxes, including those in
// pools.
func (svc *Service) Templates() map[string]bool {
	digests := map[string]bool{}
	for _, s := range svc.index.all() {
		digests[s.body.Berth.Template] = true
	}
	for _, p := range svc.pools.all {
		p.mu.Lock()
		for _, s := range p.ready {
			digests[s.body.Berth.Template] = true
		}
		p.mu.Unlock()
	}
	return digests
}
