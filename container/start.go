package container

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

// restartGrace is the time after the start of the server in which no container expires, so that
// interrupted runs can resume.
const restartGrace = time.Minute

// Start takes over the containers of a former process. Containers whose sandboxes are alive
// continue, with all processes in them. Interrupted starts are repeated. Containers whose
// sandboxes are dead or missing end with a reason. Sandboxes without a container are destroyed.
// From then on idle containers expire.
func (svc *Service) Start(ctx context.Context) error {
	recs, err := svc.opts.Store.RunningContainers(ctx)
	if err != nil {
		return fmt.Errorf("container: read containers: %w", err)
	}
	ids, err := svc.opts.Driver.List(ctx)
	if err != nil {
		return fmt.Errorf("container: list sandboxes: %w", err)
	}
	unowned := make(map[string]bool, len(ids))
	for _, id := range ids {
		unowned[id] = true
	}
	moved := svc.movedAway(recs)
	for id := range moved {
		delete(unowned, id)
	}
	recs = svc.own(recs, unowned)
	svc.trail.recordMissed(recs)
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, rec := range recs {
		exists := unowned[string(rec.Body.ID)]
		delete(unowned, string(rec.Body.ID))
		g.Go(func() error {
			if svc.claimer() != nil { // a former process may not have claimed what it took over
				return svc.claim(ctx, rec)
			}
			return svc.adopt(rec, exists)
		})
	}
	err = g.Wait()
	for id := range unowned {
		g.Go(func() error {
			ctx, cancel := svc.opts.clock.WithTimeout(ctx, removeTimeout)
			defer cancel()
			svc.opts.Log.Info("destroy sandbox without a container", "sandbox", id)
			if err := svc.opts.Driver.Destroy(ctx, id); err != nil {
				svc.opts.Log.Error("failed to destroy a sandbox without a container", "sandbox", id, "err", err)
			}
			return nil
		})
	}
	if err := errors.Join(err, g.Wait()); err != nil {
		return err
	}
	left, err := svc.opts.Driver.List(ctx)
	if err != nil {
		return fmt.Errorf("container: list sandboxes: %w", err)
	}
	left = slices.DeleteFunc(left, func(id string) bool { return moved[id] })
	if err := svc.trail.recordLost(ctx, recs, left); err != nil {
		return fmt.Errorf("container: complete the audit log: %w", err)
	}
	if !svc.work.loop(svc.sweeper.run) {
		return errStopping
	}
	for _, p := range svc.pools.all {
		if !svc.work.loop(p.run) {
			return errStopping
		}
	}
	return nil
}

// adopt registers a container that a former process left running.
func (svc *Service) adopt(rec *store.Container, exists bool) error {
	s := svc.leases.newInstance(rec.Project, rec.Body)
	s.usage.graceUntil = svc.opts.clock.Now().Add(restartGrace)
	ctx, cancel := svc.opts.clock.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := svc.name(ctx, s); err != nil {
		return err
	}
	unconnected := svc.networks.load(ctx, s)
	if err := svc.index.register(s, math.MaxInt, -1); err != nil {
		return err
	}
	svc.share(s)
	svc.volumes.retain(s)
	if exists {
		svc.wake(ctx, s)
	}
	start, err := svc.records.load(ctx, s)
	switch damaged := errors.Is(err, errStartRecord); {
	case damaged && rec.Body.Berth.Starting:
		svc.starter.fail(s, err)
		return nil
	case err != nil && !damaged:
		return err
	}
	if start != nil && (rec.Body.Berth.Starting || start.Memory && exists) {
		if unconnected != nil {
			unconnected = stepError{"its network could not be connected", unconnected}
		}
		return svc.starter.startAgain(ctx, s, start, unconnected)
	}
	close(s.started)
	filled := exists && svc.opts.Disk.Filled != nil && svc.opts.Disk.Filled(s.id)
	lives := exists && !filled && !rec.Body.Berth.Starting
	if err := svc.logs.recover(ctx, s, lives); err != nil {
		svc.opts.Log.Error("failed to log the commands that ran when the server ended", "container", s.id, "err", err)
	}
	if filled && !rec.Body.Berth.Starting {
		svc.deaths.end(s, reasonDisk, goneError(&s.body, reasonDisk), nil, nil)
		return nil
	}
	if !lives {
		svc.deaths.end(s, reasonHost, goneError(&s.body, reasonHost), nil, nil)
		return nil
	}
	if unconnected != nil {
		// The container stays without a network: ending it would lose the work in it.
		svc.opts.Log.Error("container lost its network", "container", s.id, "err", unconnected)
		s.network.Store(nil)
	}
	svc.deaths.check(s)
	svc.adoptPaused(ctx, s)
	svc.access.endAbandoned(s)
	go func() { _ = svc.networks.connect(s.life, s) }()
	return nil
}

// adoptPaused reconciles the stored state of a container's pause with its sandbox after a restart, and wakes a sleeping
// one if containers do not sleep any more.
func (svc *Service) adoptPaused(ctx context.Context, s *instance) {
	if s.body.Berth.Paused && !s.isPaused() {
		s.mu.Lock()
		s.pause.saved = true
		s.mu.Unlock()
		svc.leases.savePaused(ctx, s, false)
	}
	if !svc.opts.sleeps() {
		go func() {
			if err := svc.leases.wake(s.life, s); err != nil && s.life.Err() == nil {
				svc.opts.Log.Error("failed to wake a container", "container", s.id, "err", err)
			}
		}()
	}
}

// wake thaws a sandbox that was frozen when the former process ended, or by this one while the
// host's volume was full. It reads the sandbox's disk use before.
func (svc *Service) wake(ctx context.Context, s *instance) {
	freezer, ok := svc.opts.Driver.(sandbox.Freezer)
	if !ok {
		return
	}
	if err := s.driver.acquire(ctx); err != nil {
		return
	}
	defer s.driver.release()
	if stats, err := svc.opts.Driver.Stats(ctx, string(s.id)); err == nil {
		s.health.disk.Store(stats.Disk)
	}
	if err := freezer.Thaw(ctx, string(s.id)); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		svc.opts.Log.Error("failed to thaw a container", "container", s.id, "err", err)
	}
}
