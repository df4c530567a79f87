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

func (k *Service) sweepLoop() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	count := time.NewTicker(countEvery)
	defer count.Stop()
	for {
		select {
		case <-count.C:
			for _, p := range k.pools {
				p.report()
			}
			k.expireSnapshots()
			k.expireVolumes()
			if err := k.opts.Store.CountContainers(k.life); err != nil && k.life.Err() == nil {
				k.opts.Log.Error("the seconds of containers were not counted; they will be, later", "err", err)
			}
		case <-tick.C:
			k.sweep(k.life)
		case <-k.closing:
			return
		}
	}
}

// sweep looks after all sandboxes once.
func (k *Service) sweep(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, s := range k.all() {
		k.listen(s)
		if job := k.due(s); job != nil {
			g.Go(func() error { job(ctx, s); return nil })
		}
	}
	for _, p := range k.pools {
		g.Go(func() error { p.sweep(); return nil })
	}
	_ = g.Wait()
}

// due returns what is to be done for a sandbox now, nil for nothing.
func (k *Service) due(s *instance) func(context.Context, *instance) {
	now := k.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.lastActiveLocked(now).Unix()
	switch {
	case s.life.Err() != nil:
		return func(context.Context, *instance) { k.interSoon(s) }
	case !s.running() || s.dyingLocked():
		return nil
	case s.idleLocked(now):
		return func(context.Context, *instance) { k.expire(s) }
	case now.Sub(s.checked) >= checkEvery:
		s.checked = now
		return func(context.Context, *instance) { k.check(s) }
	case at > s.saved && (s.holds == 0 || at-s.saved >= saveEvery):
		return func(ctx context.Context, s *instance) { k.saveActivity(ctx, s, at) }
	}
	return nil
}

// expire ends a container, unless it has come into use since it was found idle.
func (k *Service) expire(s *instance) {
	if s.body.Berth.OnExpiry == berth.OnExpirySnapshot {
		k.leaveSnapshot(s)
		return
	}
	k.bury(s, reasonExpired, goneError(&s.body, reasonExpired), nil, func() bool { return s.idleLocked(k.now()) })
}

// saveActivity saves a container's last_active_at. A crash loses what the sweeper
// has not saved yet: a second, or saveEvery while the container was in use.
func (k *Service) saveActivity(ctx context.Context, s *instance, at int64) {
	_, err := k.opts.Store.UpdateContainer(ctx, s.project, s.id, func(c *berth.Container) error {
		if c.Status != berth.ContainerRunning || c.LastActiveAt >= at {
			return errUnchanged
		}
		c.LastActiveAt = at
		return nil
	})
	switch {
	case err == nil, errors.Is(err, errUnchanged), errors.Is(err, store.ErrNotFound):
		s.mu.Lock()
		s.saved = max(s.saved, at)
		s.mu.Unlock()
	case ctx.Err() == nil:
		k.opts.Log.Error("a container's activity was not saved", "container", s.id, "err", err)
	}
}
