package container

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/berth-run/berth"
	"github.com/berth-run/berth/sandbox"
	"github.com/berth-run/berth/store"
)

// An adopter registers the containers that a former process, or a lost server, left running.
type adopter struct {
	opts     *Options
	index    *index
	networks *networks
	records  *startRecords
	volumes  *volumes
	deaths   *deaths
	leases   *leases
	logs     *Logs
	access   *Access
	starter  *starter
}

// adopt registers a container that a former process left running.
func (ad *adopter) adopt(rec *store.Container, exists bool) error {
	s := ad.leases.newInstance(rec.Project, rec.Body)
	s.usage.graceUntil = ad.opts.clock.Now().Add(restartGrace)
	ctx, cancel := ad.opts.clock.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if err := ad.name(ctx, s); err != nil {
		return err
	}
	unconnected := ad.networks.load(ctx, s)
	if err := ad.index.register(s, math.MaxInt, allowance{most: -1}); err != nil {
		return err
	}
	ad.opts.share(s)
	ad.volumes.retain(s)
	if exists {
		ad.wake(ctx, s)
	}
	start, err := ad.records.load(ctx, s)
	switch damaged := errors.Is(err, errStartRecord); {
	case damaged && rec.Body.Berth.Starting:
		ad.starter.fail(s, err)
		return nil
	case err != nil && !damaged:
		return err
	}
	if start != nil && (rec.Body.Berth.Starting || start.Memory && exists) {
		if unconnected != nil {
			unconnected = stepError{"its network could not be connected", unconnected}
		}
		return ad.starter.startAgain(ctx, s, start, unconnected)
	}
	close(s.started)
	filled := exists && ad.opts.Disk.Filled != nil && ad.opts.Disk.Filled(s.id)
	lives := exists && !filled && !rec.Body.Berth.Starting
	if err := ad.logs.recover(ctx, s, lives); err != nil {
		ad.opts.Log.Error("failed to log the commands that ran when the server ended", "container", s.id, "err", err)
	}
	if filled && !rec.Body.Berth.Starting {
		ad.deaths.end(s, reasonDisk, goneError(&s.body, reasonDisk), nil, nil)
		return nil
	}
	if !lives {
		ad.deaths.end(s, reasonHost, goneError(&s.body, reasonHost), nil, nil)
		return nil
	}
	if unconnected != nil {
		// The container stays without a network: ending it would lose the work in it.
		ad.opts.Log.Error("container lost its network", "container", s.id, "err", unconnected)
		s.network.Store(nil)
	}
	ad.deaths.check(s)
	ad.adoptPaused(ctx, s)
	ad.access.endAbandoned(s)
	go func() { _ = ad.networks.connect(s.life, s) }()
	return nil
}

// name records this server in the row of a container from before the cluster.
func (ad *adopter) name(ctx context.Context, s *instance) error {
	now := s.body
	if !ad.opts.placement.rename(&now) {
		return nil
	}
	_, err := ad.opts.Store.UpdateContainer(ctx, s.project, s.id, func(c *berth.Container) error {
		ad.opts.placement.rename(c)
		return nil
	})
	if err != nil {
		return fmt.Errorf("record the server of container %s: %w", s.id, err)
	}
	s.body.Berth.Server = now.Berth.Server
	return nil
}

// adoptPaused reconciles the stored state of a container's pause with its sandbox after a restart, and wakes a sleeping
// one if containers do not sleep any more.
func (ad *adopter) adoptPaused(ctx context.Context, s *instance) {
	if s.body.Berth.Paused && !s.isPaused() {
		s.mu.Lock()
		s.pause.saved = true
		s.mu.Unlock()
		ad.leases.pauser.savePaused(ctx, s, false)
	}
	if !ad.opts.sleeps() {
		go func() {
			if err := ad.leases.pauser.wake(s.life, s); err != nil && s.life.Err() == nil {
				ad.opts.Log.Error("failed to wake a container", "container", s.id, "err", err)
			}
		}()
	}
}

// wake thaws a sandbox that was frozen when the former process ended, or by this one while the
// host's volume was full. It reads the sandbox's disk use before.
func (ad *adopter) wake(ctx context.Context, s *instance) {
	freezer, ok := ad.opts.Driver.(sandbox.Freezer)
	if !ok {
		return
	}
	if err := s.driver.acquire(ctx); err != nil {
		return
	}
	defer s.driver.release()
	if stats, err := ad.opts.Driver.Stats(ctx, string(s.id)); err == nil {
		s.health.disk.Store(stats.Disk)
	}
	if err := freezer.Thaw(ctx, string(s.id)); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		ad.opts.Log.Error("failed to thaw a container", "container", s.id, "err", err)
	}
}

// restartGrace is the time after the start of the server in which no container expires, so that
// interrupted runs can resume.
const restartGrace = time.Minute
