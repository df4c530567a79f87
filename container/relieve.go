package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/sandbox"
)

const (
	// relieveTimeout bounds the removal of containers that fill the host's volume.
	relieveTimeout = 15 * time.Second
	// freezeTimeout bounds the wait for one sandbox to stand still.
	freezeTimeout = 2 * time.Second
	// minGrowth is how much a container must have grown since the last check to be
	// regarded as one that fills the volume.
	minGrowth = 8 << 20
)

// diskUse is what a sandbox has on its disk.
type diskUse struct {
	s      *instance
	bytes  int64
	growth int64 // since the last check, at most checkInterval ago
}

// Relieve ends the containers that fill the host's volume, with the reason "disk", until it
// has enough space: those whose disks grow, the quickest first, or, if none grows, the
// largest ones if their end is enough. need returns how many bytes the volume lacks now.
// It returns true if a container was ended and its space is free. Pausing would not help:
// any use would resume the container, and its space would stay in use.
//
// If the driver is a sandbox.Freezer, all other sandboxes stand still meanwhile: they would
// use up what is freed before an end is saved. Up to then nothing is written.
func (svc *Service) Relieve(ctx context.Context, need func() int64) bool {
	ctx, cancel := context.WithTimeout(ctx, relieveTimeout)
	defer cancel()
	freezer, ok := svc.opts.Driver.(sandbox.Freezer)
	if ok {
		svc.killEnded(ctx, freezer)
	}
	lack := need()
	if lack <= 0 {
		return true
	}
	uses := svc.meter.measure(ctx)
	writers := writersOf(uses, lack)
	if len(writers) == 0 {
		return false
	}
	if !ok {
		return svc.relieveOf(ctx, writers[0], lack)
	}
	thaw := svc.freezeAll(ctx, freezer, uses)
	defer thaw()
	var ended []*instance
	for _, w := range writers {
		if lack = need(); lack <= 0 {
			break
		}
		// Its end is marked first, so that no check finds a dead sandbox without a reason.
		if !svc.deaths.claim(w.s, reasonDisk, w.cause(lack), nil) {
			continue
		}
		ended = append(ended, w.s)
		if err := svc.kill(ctx, freezer, w.s); err != nil {
			svc.opts.Log.Error("failed to end the processes of a container that fills the disk", "container", w.s.id, "err", err)
		}
	}
	for _, s := range ended {
		svc.deaths.settle(s, goneError(&s.body, reasonDisk))
	}
	thaw()
	removed := 0
	for _, s := range ended {
		if svc.deaths.remove(s) == nil {
			removed++
		}
	}
	return removed > 0
}

func (w diskUse) cause(need int64) error {
	return fmt.Errorf("its disk has %d bytes, %d more than at the last check, and the volume lacks %d bytes", w.bytes, w.growth, need)
}

// relieveOf ends one container, of a driver that cannot freeze.
func (svc *Service) relieveOf(ctx context.Context, w diskUse, need int64) bool {
	s := w.s
	// It must stop before its end is saved: the save may need the space that it uses up.
	if svc.opts.Driver.Features().Pause && s.driver.acquire(ctx) == nil {
		if err := svc.opts.Driver.Pause(ctx, string(s.id)); err != nil {
			svc.opts.Log.Warn("failed to pause a container that fills the disk", "container", s.id, "err", err)
		}
		s.driver.release()
	}
	svc.deaths.end(s, reasonDisk, goneError(&s.body, reasonDisk), w.cause(need), nil)
	return svc.deaths.remove(s) == nil
}

// freezeAll freezes sandboxes and holds their drivers. thaw, which may be called twice,
// continues them.
func (svc *Service) freezeAll(ctx context.Context, freezer sandbox.Freezer, uses []diskUse) (thaw func()) {
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, u := range uses {
		g.Go(func() error {
			if err := svc.freeze(ctx, freezer, u.s); err != nil {
				svc.opts.Log.Warn("failed to freeze a container while the disk is full", "container", u.s.id, "err", err)
			}
			return nil
		})
	}
	_ = g.Wait()
	return sync.OnceFunc(func() {
		for _, u := range uses {
			if err := svc.thaw(context.WithoutCancel(ctx), freezer, u.s); err != nil {
				svc.opts.Log.Error("failed to thaw a container", "container", u.s.id, "err", err)
			}
		}
	})
}

func (svc *Service) freeze(ctx context.Context, freezer sandbox.Freezer, s *instance) error {
	ctx, cancel := context.WithTimeout(ctx, freezeTimeout)
	defer cancel()
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	defer s.driver.release()
	return freezer.Freeze(ctx, string(s.id))
}

// killEnded ends the processes of containers that have ended and whose ends could not be
// saved: they are not destroyed, and may write.
func (svc *Service) killEnded(ctx context.Context, freezer sandbox.Freezer) {
	for _, s := range svc.index.all() {
		if s.life.Err() == nil || s.death.removing.Load() {
			continue
		}
		if err := svc.kill(ctx, freezer, s); err != nil && !errors.Is(err, sandbox.ErrNotFound) {
			svc.opts.Log.Error("failed to end the processes of a container that has ended", "container", s.id, "err", err)
		}
	}
}

func (svc *Service) kill(ctx context.Context, freezer sandbox.Freezer, s *instance) error {
	if err := s.driver.acquire(ctx); err != nil {
		return err
	}
	defer s.driver.release()
	return freezer.Kill(ctx, string(s.id))
}

// thaw continues a sandbox unless it has ended.
func (svc *Service) thaw(ctx context.Context, freezer sandbox.Freezer, s *instance) error {
	ctx, cancel := context.WithTimeout(ctx, relieveTimeout)
	defer cancel()
	if s.life.Err() != nil {
		return nil // it is killed, or its removal is due
	}
	// Without the driver's lock: who holds it may wait for the sandbox.
	return freezer.Thaw(ctx, string(s.id))
}

// measure returns the disk use of the running sandboxes.
func (m *meter) measure(ctx context.Context) []diskUse {
	var mu sync.Mutex
	var all []diskUse
	var g errgroup.Group
	g.SetLimit(sweepWidth)
	for _, s := range m.index.all() {
		if s.life.Err() != nil || !s.running() {
			continue
		}
		g.Go(func() error {
			read, err := m.read(ctx, s)
			if err != nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, diskUse{s, read.Disk, read.Disk - s.health.disk.Load()})
			return nil
		})
	}
	_ = g.Wait()
	return all
}

// writersOf returns the sandboxes that may have filled the volume, those to end first
// first: the ones that grow, or else the largest ones if together they have the bytes that
// the volume needs.
func writersOf(all []diskUse, need int64) []diskUse {
	var grow, large []diskUse
	var bytes int64
	for _, u := range all {
		if u.growth >= minGrowth {
			grow = append(grow, u)
		}
		if u.bytes >= minGrowth {
			large = append(large, u)
			bytes += u.bytes
		}
	}
	if len(grow) > 0 {
		slices.SortFunc(grow, func(a, b diskUse) int { return cmp.Compare(b.growth, a.growth) })
		return grow
	}
	if bytes < need {
		return nil // something else fills it
	}
	slices.SortFunc(large, func(a, b diskUse) int { return cmp.Compare(b.bytes, a.bytes) })
	return large
}
