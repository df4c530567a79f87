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
	sweepInterval = time.Second
	countInterval = time.Minute // between additions of the containers' seconds to their projects' usage
	saveInterval  = 30          // seconds between two saves of last_active_at while a container is in use
)

// A sweeper ends idle containers, finds dead ones and saves when they were last used.
type sweeper struct {
	opts      *Options
	work      *workers
	index     *index
	prober    *prober
	pauser    *pauser
	expirer   *expirer
	deaths    *deaths
	snapshots *Snapshots
	volumes   *volumes
	pools     *pools
}

// run sweeps until the service closes.
func (sw *sweeper) run() {
	tick := sw.opts.clock.NewTicker(sweepInterval)
	defer tick.Stop()
	count := sw.opts.clock.NewTicker(countInterval)
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
				sw.opts.Log.Error("failed to count the seconds of containers; will retry", "err", err)
			}
		case <-tick.C:
			sw.sweep(sw.work.life)
		case <-sw.work.closing:
			return
		}
	}
}

// sweep runs the jobs that are due for all sandboxes.
func (sw *sweeper) sweep(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, s := range sw.index.all() {
		sw.prober.probeIfDue(s)
		if job := sw.due(s); job != nil {
			g.Go(func() error { job(ctx, s); return nil })
		}
	}
	for _, p := range sw.pools.all {
		g.Go(func() error { p.sweep(); return nil })
	}
	_ = g.Wait()
}

// due returns the job that is due for a sandbox, or nil.
func (sw *sweeper) due(s *instance) func(context.Context, *instance) {
	now := sw.opts.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.lastActiveLocked(now).Unix()
	interval := checkInterval
	if s.quiet.asleep.Load() {
		interval = sleepChecks
	}
	var drowse func(context.Context, *instance)
	if s.running() {
		drowse = sw.pauser.drowseLocked(s, now)
	}
	switch {
	case s.life.Err() != nil:
		return func(context.Context, *instance) { sw.deaths.removeSoon(s) }
	case !s.running() || s.dyingLocked():
		return nil
	case s.idleLocked(now):
		return sw.expirer.expire
	case now.Sub(s.health.checked) >= interval:
		s.health.checked = now
		return func(context.Context, *instance) { sw.deaths.check(s) }
	case drowse != nil:
		return drowse
	case at > s.usage.saved && (s.usage.holds == 0 || at-s.usage.saved >= saveInterval):
		return func(ctx context.Context, s *instance) { sw.saveActivity(ctx, s, at) }
	}
	return nil
}

// saveActivity saves a container's last_active_at. A crash loses the time since the last
// save: a second, or saveInterval while the container was in use.
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
		sw.opts.Log.Error("failed to save the last use of a container", "container", s.id, "err", err)
	}
}
