package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/container"
	"github.com/berth-run/berth/diskspace"
	"github.com/berth-run/berth/egress"
	"github.com/berth-run/berth/image"
	"github.com/berth-run/berth/metrics"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/secrets"
	"github.com/berth-run/berth/server/config"
	"github.com/berth-run/berth/server/driver"
	"github.com/berth-run/berth/server/state"
	"github.com/berth-run/berth/server/templates"
	"github.com/berth-run/berth/store"
)

// containers holds the container service and the parts that it uses.
type containers struct {
	driver    sandbox.Driver
	templates *templates.Catalog
	service   *container.Service
	secrets   *secrets.Service // that its network rules name
}

// startContainers opens the driver, takes over the sandboxes of the previous process, and starts
// background work.
func (s *Server) startContainers(ctx context.Context, b *base, data *blobs) (*containers, error) {
	images, err := image.Open(state.ImagesDir(b.State), b.Log)
	if err != nil {
		return nil, fmt.Errorf("open templates: %w", err)
	}
	s.template = func() (string, error) {
		t, err := templates.Default(b.Config, images)
		if err != nil && b.Config.Driver == config.UnsafeLocal {
			return "this machine", nil
		}
		return t.Name, err
	}
	warnOfPools(images, b.Config, b.Log)
	c := &containers{templates: templates.New(images, b.Config, b.quota.Limits),
		secrets: secrets.New(secrets.Options{Objects: b.db, Seal: b.keys, Audit: b.audit})}
	s.templates = c.templates
	if c.driver, err = driver.Open(b.State, b.Config, b.Log); err != nil {
		return nil, err
	}
	opts, err := containerOptions(b, data, c)
	if err != nil {
		return nil, err
	}
	opts.Observer = metrics.Sandbox{Metrics: s.metrics}
	if c.service, err = container.New(opts); err != nil {
		return nil, err
	}
	b.space.Start(c.service.Relieve) // before Start, which thaws containers: those may write
	if err := c.service.Start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("take over containers: %w", err), b.space.Close())
	}
	b.start.calm.thawed()
	s.later(func(context.Context) error { return data.volumes.Close() }) // volumes of running containers stay mounted
	s.later(startPruning(c.templates, func(ctx context.Context) (map[string]bool, error) {
		return state.TemplateReferences(ctx, b.db, data.snapshots)
	}, c.service, b.Log))
	s.later(func(context.Context) error { return c.service.Close() })
	s.later(func(context.Context) error { return b.space.Close() })
	s.later(b.cluster.Keep(c.service)) // it stops first: a closed service takes no container over
	return c, nil
}

// warnOfPools warns about pools whose template does not exist. They fill once it does.
func warnOfPools(images *image.Store, config *config.Config, log *slog.Logger) {
	for i, p := range config.Containers.Pools {
		if p.Template == "" {
			continue
		}
		if _, err := images.Get(p.Template); err != nil {
			log.Warn("a pool stays empty without its template", "key", fmt.Sprintf("containers.pools[%d].template", i),
				"template", p.Template, "err", err)
		}
	}
}

func containerOptions(b *base, data *blobs, c *containers) (container.Options, error) {
	config := b.Config.Containers
	volumes := data.volumes
	var shares container.Shares
	if !b.cluster.Alone() {
		volumes, shares = nil, b.quota // a volume is on one machine
	}
	network, err := networkOptions(b.Config)
	if err != nil {
		return container.Options{}, fmt.Errorf("configure network: %w", err)
	}
	spool, err := b.spoolDir()
	if err != nil {
		return container.Options{}, err
	}
	network.Secret = func(ctx context.Context, p berth.ProjectID, name string) (string, error) {
		value, err := c.secrets.Value(ctx, p, name)
		if errors.Is(err, store.ErrNotFound) {
			err = egress.ErrNoSecret
		}
		return value, err
	}
	network.Visit = b.cluster.Visit
	return container.Options{Subjects: b.users.Ensure, Held: b.holds.Check,
		Server: b.cluster.Self(), Shares: shares, Store: b.db, Driver: c.driver,
		OpenFile: data.files.Open, Log: b.Log,
		Network: network, Seal: b.keys, Audit: b.audit, Volumes: volumes, Snapshots: data.snapshots,
		Skills:   data.skills,
		Template: c.templates.Find, MayName: c.templates.MayName,
		Expiry: container.ExpiryOptions{Action: config.OnExpiry, SnapshotLife: config.SnapshotLife,
			IdleMinutes: int(config.Idle / time.Minute), MaxIdleMinutes: int(config.MaxIdle / time.Minute)},
		Quota: b.quota.Containers, SleepAfter: config.Sleep, SpoolDir: spool,
		Disk: container.DiskOptions{Filled: b.start.calm.hasFilled,
			Room: func() error { return b.space.Admit(diskspace.Sandboxes, diskspace.Snapshots) }},
		Limits: sandbox.Limits{CPU: config.CPU, PIDs: config.PIDs, Disk: int64(config.Disk)},
		Pools:  poolOptions(b.Config), Memory: poolMemory(b.Config),
		Bounds: container.Bounds{Starts: config.Starts}}, nil
}
