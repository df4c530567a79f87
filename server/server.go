// Package server makes one server of its parts: it reads the configuration, opens the state
// directory and the driver, wires the services top to bottom, runs their background work,
// and stops them in order.
package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob/fileblob"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/api"
	"github.com/berth-run/berth/bundle"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/container/snapshot"
	"github.com/berth-run/berth/container/volume"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/download"
	"github.com/berth-run/berth/engine"
	"github.com/berth-run/berth/files"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/internal/nofile"
	"github.com/berth-run/berth/internal/seal"
	"github.com/berth-run/berth/internal/statefile"
	"github.com/berth-run/berth/journal"
	"github.com/berth-run/berth/metrics"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/sandbox/docker"
	"github.com/berth-run/berth/sandbox/gvisor"
	"github.com/berth-run/berth/sandbox/local"
	"github.com/berth-run/berth/sandbox/microvm"
	"github.com/berth-run/berth/server/embedded"
	"github.com/berth-run/berth/store"
	"github.com/berth-run/berth/store/sqlite"
	"github.com/berth-run/berth/tool"
	"github.com/berth-run/berth/webhook"
)

// A Server is everything that berth serve runs, in the order in which it was made.
type Server struct {
	log     *slog.Logger
	config  ServerConfig
	handler http.Handler
	metrics *metrics.Metrics
	open    bool                          // it needs no key: there was none at its start
	leave   func(context.Context) error   // leaves the runs to the next start
	close   []func(context.Context) error // to be called from the last to the first
}

// New makes a server from its parts, top to bottom. On an error it closes what it has made.
func New(ctx context.Context, o Options) (s *Server, err error) {
	state, config, log := o.State, o.Config, o.Log
	s = &Server{log: log, metrics: metrics.New(o.Version), config: config.Server}
	nofile.Reserve()
	defer func() {
		if err != nil {
			s.Close(context.WithoutCancel(ctx))
		}
	}()
	unlock, err := Lock(state)
	if err != nil {
		return s, err
	}
	s.later(func(context.Context) error { return unlock() })
	space, err := openSpace(state, config, log)
	if err != nil {
		return s, err
	}
	owner, err := nodeID(state)
	if err != nil {
		return s, err
	}

	key, err := sealKey(state)
	if err != nil {
		return s, err
	}

	db, err := OpenStore(ctx, state, sqlite.Options{Synchronous: config.Store.Synchronous, Log: log, Room: space})
	if err != nil {
		return s, err
	}
	s.later(func(context.Context) error { return db.Close() })

	keys, err := db.ListKeys(ctx)
	if err != nil {
		return s, fmt.Errorf("list keys: %w", err)
	}
	s.open = len(keys) == 0

	record, err := openRecord(state, log)
	if err != nil {
		return s, err
	}
	s.later(func(context.Context) error { return record.Close() })
	record.OnFull(space.MakeRoom)

	bucket, err := fileblob.OpenBucket(filepath.Join(state, "files"), &fileblob.Options{CreateDir: true, NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	if err != nil {
		return s, err
	}
	s.later(func(context.Context) error { return bucket.Close() })
	quotas := newQuota(db, config)
	snapshots, err := openSnapshots(ctx, state, snapshot.Options{Objects: db, Seal: seal.New(key), Audit: record, Log: log,
		Count: quotas.Snapshots, Quota: within(space, diskspace.Snapshots, quotas.Store)}, log)
	if err != nil {
		return s, err
	}
	s.later(func(context.Context) error { return snapshots.Close() })
	volumes, err := openVolumes(ctx, state, volume.Options{Objects: db, Seal: seal.New(key), Audit: record,
		Quota: within(space, diskspace.Volumes, quotas.Store)}, log)
	if err != nil {
		return s, err
	}
	uploads := files.New(db, bucket)
	uploads.Quota, uploads.Audit, uploads.Log = within(space, diskspace.Files, quotas.Store), record, log
	if err := uploads.Sweep(ctx, log); err != nil {
		return s, err
	}
	s.later(startSweeping(db, uploads, log))

	images, err := image.Open(filepath.Join(state, "images"), log)
	if err != nil {
		return s, err
	}
	if _, err := images.Get(config.Template); err != nil && config.Driver != local.Name {
		log.Warn("containers cannot start yet: run berth image build", "template", config.Template, "err", err)
	}
	held := newTemplates(images, config, quotas.Limits)
	isolation, err := OpenDriver(state, config, log)
	if err != nil {
		return s, err
	}
	network, err := config.Containers.Network.options()
	if err != nil {
		return s, err
	}
	keeper, err := container.New(container.Options{Store: db, Driver: isolation, OpenFile: uploads.Open, Log: log,
		Network: network, Seal: seal.New(key), Audit: record, Volumes: volumes,
		Template: held.find, MayName: held.mayName,
		Snapshots: snapshots.Service, Expiry: container.ExpiryOptions{Action: config.Containers.OnExpiry, SnapshotLife: config.Containers.SnapshotLife,
			IdleMinutes: int(config.Containers.Idle / time.Minute), MaxIdleMinutes: int(config.Containers.MaxIdle / time.Minute)},
		Quota:    quotas.Containers,
		Room:     func() error { return space.Admit(diskspace.Sandboxes, diskspace.Snapshots) },
		Observer: metrics.Sandbox{Metrics: s.metrics},
		Limits:   sandbox.Limits{CPU: config.Containers.CPU, PIDs: config.Containers.PIDs, Disk: int64(config.Containers.Disk)},
		Pools:    config.pools(), Bounds: container.Bounds{Starts: config.Containers.Starts}})
	if err != nil {
		return s, err
	}
	if err := keeper.Start(ctx); err != nil {
		return s, err
	}
	mounted := volumes
	s.later(func(context.Context) error { return mounted.Close() }) // the containers that live on hold theirs
	s.later(held.startPruning(func(ctx context.Context) (map[string]bool, error) { return references(ctx, db, snapshots.Service) }, keeper, log))
	s.later(func(context.Context) error { return keeper.Close() })
	space.Start(keeper.Relieve)
	s.later(func(context.Context) error { return space.Close() })

	models, upstreams, err := newRouter(config, s.metrics.FirstToken, log)
	if err != nil {
		return s, err
	}
	s.metrics.Collect(metrics.Sources{Containers: keeper, Upstreams: statuses(upstreams), Snapshots: snapshots.Totals, Audit: record.Written, Usages: db,
		Space: space, Isolation: isolation.Features().Isolation})
	memory := limitMemory(log)
	answers, bodies, decoding := pool(memory.readers), pool(memory.bodies), pool(memory.decoding)
	events := journal.New(s.metrics.Responses(db))
	events.Bound(answers)
	events.AtEnd(s.metrics.AtEnd)
	hooks := webhook.New(db, log)
	events.AtEnd(hooks.AtEnd)
	s.later(func(context.Context) error { return hooks.Close() })
	hooks.Start()
	budget, err := config.Budget.budget()
	if err != nil {
		return s, err
	}
	var fetcher engine.Fetcher
	if policy := config.Fetch.policy(); policy != nil {
		fetcher = download.New(policy, engine.MaxInlineFile)
	}
	eng := engine.New(engine.Options{Budget: budget, Output: int64(config.Responses.MaxOutput), History: int64(config.Responses.History), Fetcher: fetcher, Responses: db, Runs: db, Objects: db, Journal: events, Models: models, Containers: containers{keeper},
		Files: uploads, Owner: owner, Log: log, Key: key, Usages: db, Quota: quotas, Room: func() error { return space.Admit() }, Observer: metrics.Engine{Metrics: s.metrics},
		Retry: engine.Retry{Attempts: config.Retry.Attempts, Patience: config.Retry.Patience, Final: config.Retry.Continue == "fail"},
		Shell: tool.ShellLimits{Timeout: config.Shell.Timeout, MaxTimeout: config.Shell.MaxTimeout, Output: config.Shell.Output}})
	s.leave = eng.Close
	s.later(s.leave)
	if err := eng.Recover(ctx); err != nil { // after the keeper has taken its sandboxes over
		return s, err
	}
	archived := &emptier{objects: db, projects: db, containers: keeper, responses: eng, files: uploads,
		snapshots: snapshots.Service, volumes: volumes, audit: record, log: log}
	s.later(archived.start())
	spool := filepath.Join(state, "spool") // not /tmp, which may be memory
	if err := os.MkdirAll(spool, 0o700); err != nil {
		return s, err
	}
	if !isolation.Features().Mounts {
		volumes = nil
	}
	bundles := bundle.New(bundle.Options{Responses: db, Containers: db, Objects: db, Engine: eng, Journal: events, ContainerService: keeper, Snapshots: snapshots.Service, Files: uploads,
		Templates: held.has, Quota: quotas.Store, Decoding: decoding, SpoolDir: spool, Version: o.Version})
	if err := bundles.Recover(ctx, log); err != nil {
		return s, err
	}
	s.handler = api.New(api.Options{Engine: eng, Journal: events, Models: models, Containers: keeper, Files: uploads,
		Responses: db, Objects: db, Keys: db, Closed: !s.open, Usages: db,
		Snapshots: snapshots.Service, Templates: held, Volumes: volumes, Bundles: bundles,
		Quota: quotas, Upstreams: statuses(upstreams), Currency: config.Currency,
		Webhooks: hooks, Space: space, Ready: newReadiness(db, isolation, held.find, space, log).get, Observer: metrics.API{Metrics: s.metrics}, Readers: answers, Bodies: bodies, Decoding: decoding,
		Seal: seal.New(key), Log: log, Version: o.Version, PreviewDomain: config.Preview.Domain})
	return s, nil
}

func (s *Server) later(f func(context.Context) error) { s.close = append(s.close, f) }

// Close stops the server's parts. Runs and sandboxes are left to the next start.
func (s *Server) Close(ctx context.Context) {
	for i := len(s.close) - 1; i >= 0; i-- {
		if err := s.close[i](ctx); err != nil {
			s.log.Error("closing", "err", err)
		}
	}
	s.close = nil
}

// Serve answers on l until ctx ends, then stops in order: runs are left first, so
// that the streams and sockets which follow them end, and what they need last.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	base, end := context.WithCancel(context.Background())
	defer end()
	var handlers sync.WaitGroup // those of sockets are not the http.Server's any more
	hs := &http.Server{ReadHeaderTimeout: 20 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers.Add(1)
			defer handlers.Done()
			s.handler.ServeHTTP(w, r)
		}),
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	bounded := s.config.bound(l, s.log)
	bounded.Attach(hs)
	s.metrics.Connections(bounded.Counts)
	failed := make(chan error, 1)
	go func() { failed <- hs.Serve(bounded) }()
	select {
	case err := <-failed:
		s.Close(context.Background())
		return err
	case <-ctx.Done():
	}
	s.log.Info("stopping; responses and sandboxes go on at the next start")
	l.Close()
	grace, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	defer s.Close(grace)
	if err := s.leave(grace); err != nil {
		s.log.Error("leaving the runs", "err", err)
	}
	end()
	if err := hs.Shutdown(grace); err != nil && !errors.Is(err, net.ErrClosed) {
		return hs.Close()
	}
	ended := make(chan struct{})
	go func() {
		handlers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-grace.Done():
	}
	return nil
}

// Lock makes the state directory this process's own.
func Lock(state string) (unlock func() error, err error) {
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(state, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(f.Name())
		f.Close()
		return nil, fmt.Errorf("another server (process %s) uses %s", strings.TrimSpace(string(holder)), state)
	}
	if err := f.Truncate(0); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(f, os.Getpid()); err != nil && !errors.Is(err, unix.ENOSPC) { // the lock holds without
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// nodeID is this server's name on leases, the same after each start.
func nodeID(state string) (string, error) {
	path := filepath.Join(state, "node_id")
	text, err := statefile.ReadFile(path)
	if err == nil && len(text) > 0 {
		return strings.TrimSpace(string(text)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	id := "node_" + strings.ToLower(rand.Text())
	return id, os.WriteFile(path, []byte(id+"\n"), 0o600)
}

// OpenDriver is the table of drivers.
func OpenDriver(state string, config *Config, log *slog.Logger) (sandbox.Driver, error) {
	programs, err := embedded.Extract(filepath.Join(state, "bin"))
	if err != nil {
		return nil, err
	}
	switch config.Driver {
	case "gvisor":
		return gvisor.Open(gvisor.Options{StateDir: filepath.Join(state, "gvisor"), RunscPath: programs.Runsc, GuestPath: programs.Guest, Logger: log})
	case "docker":
		return docker.Open(docker.Options{StateDir: filepath.Join(state, "docker"), GuestPath: programs.Guest, Host: config.Docker.Host, Runtime: config.Docker.Runtime, Logger: log})
	case "microvm":
		return microvm.Open(microvm.Options{StateDir: filepath.Join(state, "microvm"), GuestPath: programs.Guest, QEMUPath: config.MicroVM.QEMU,
			KernelDir: kernelDir(state, config), Accel: config.MicroVM.Accel, Logger: log})
	case local.Name:
		return local.Open(local.Options{Name: config.Driver, StateDir: filepath.Join(state, "local"), GuestPath: programs.Guest, Logger: log})
	}
	return nil, fmt.Errorf("unknown driver %q: it is gvisor, microvm, docker or %s", config.Driver, local.Name)
}

// containers gives the engine what it needs of the keeper.
type containers struct{ *container.Service }

func (c containers) Shell(caller berth.Caller, id berth.ContainerID) tool.Execer {
	return c.Service.Access().Shell(caller, id)
}

func (c containers) Template(ctx context.Context, p berth.ProjectID, id berth.ContainerID) (string, error) {
	body, err := c.Service.Get(ctx, p, id)
	if err != nil {
		return "", err
	}
	return body.Berth.Template, nil
}

func (c containers) Files(ctx context.Context, p berth.ProjectID, id berth.ContainerID) ([]*berth.ContainerFile, error) {
	files, _, err := c.Service.Files().List(ctx, p, id, store.Page{Limit: 10_000})
	return files, err
}
