package container

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/store"
)

const (
	sweepEvery = time.Second
	countEvery = time.Minute      // the seconds of containers for what projects have used
	checkEvery = 10 * time.Second // how often the driver is asked about a sandbox
	saveEvery  = 30               // seconds between savings of last_active_at while a container is in use
	sweepWidth = 8                // sandboxes looked after at once
)

// errUnchanged leaves a container as it is stored.
var errUnchanged = errors.New("unchanged")

// A sweeper ends idle containers, finds dead ones and saves when they were last used.
type sweeper struct {
	opts      *Options
	work      *workers
	index     *index
	leases    *leases
	deaths    *deaths
	snapshots *snapshots
	volumes   *volumes
	pools     *pools
}

// run sweeps until the service closes.
func (sw *sweeper) run() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	count := time.NewTicker(countEvery)
	defer count.Stop()
	for {
		select {
		case <-count.C:
			for _, p := range sw.pools.all {
				p.report()
			}
			sw.snapshots.expire()
			sw.volumes.expire()
			if err := sw.opts.Store.CountContainers(sw.work.life); err != nil && sw.work.life.Err() == nil {
				sw.opts.Log.Error("the seconds of containers were not counted; they will be, later", "err", err)
			}
		case <-tick.C:
			sw.sweep(sw.work.life)
		case <-sw.work.closing:
			return
		}
	}
}

// sweep looks after all sandboxes once.
func (sw *sweeper) sweep(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, s := range sw.index.all() {
		sw.leases.probeIfDue(s)
		if job := sw.due(s); job != nil {
			g.Go(func() error { job(ctx, s); return nil })
		}
	}
	for _, p := range sw.pools.all {
		g.Go(func() error { p.sweep(); return nil })
	}
	_ = g.Wait()
}

// due returns what is to be done for a sandbox now, nil for nothing.
func (sw *sweeper) due(s *instance) func(context.Context, *instance) {
	now := sw.opts.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.lastActiveLocked(now).Unix()
	switch {
	case s.life.Err() != nil:
		return func(context.Context, *instance) { sw.deaths.removeSoon(s) }
	case !s.running() || s.dyingLocked():
		return nil
	case s.idleLocked(now):
		return func(context.Context, *instance) { sw.expire(s) }
	case now.Sub(s.health.checked) >= checkEvery:
		s.health.checked = now
		return func(context.Context, *instance) { sw.deaths.check(s) }
	case at > s.usage.saved && (s.usage.holds == 0 || at-s.usage.saved >= saveEvery):
		return func(ctx context.Context, s *instance) { sw.saveActivity(ctx, s, at) }
	}
	return nil
}

// expire ends a container, unless it has come into use since it was found idle.
func (sw *sweeper) expire(s *instance) {
	if s.body.Berth.OnExpiry == berth.OnExpirySnapshot {
		sw.expireToSnapshot(s)
		return
	}
	sw.deaths.end(s, reasonExpired, goneError(&s.body, reasonExpired), nil, func() bool { return s.idleLocked(sw.opts.now()) })
}

// saveActivity saves a container's last_active_at. A crash loses what the sweeper
// has not saved yet: a second, or saveEvery while the container was in use.
func (sw *sweeper) saveActivity(ctx context.Context, s *instance, at int64) {
	_, err := sw.opts.Store.UpdateContainer(ctx, s.project, s.id, func(c *berth.Container) error {
		if c.Status != berth.ContainerRunning || c.LastActiveAt >= at {
			return errUnchanged
		}
		c.LastActiveAt = at
		return nil
	})
	switch {
	case err == nil, errors.Is(err, errUnchanged), errors.Is(err, store.ErrNotFound):
		s.mu.Lock()
		s.usage.saved = max(s.usage.saved, at)
		s.mu.Unlock()
	case ctx.Err() == nil:
		sw.opts.Log.Error("a container's activity was not saved", "container", s.id, "err", err)
	}
}
