package container

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// relieveTime bounds the removal of a container that fills the host's volume.
	relieveTime = 15 * time.Second
	// leastGrowth is by how much a container must have grown since it was last checked
	// to be the one that fills the volume.
	leastGrowth = 8 << 20
)

// A written is what a sandbox has on its disk.
type written struct {
	s      *instance
	bytes  int64
	growth int64 // since the last check, at most checkEvery ago
}

// Relieve ends the container that fills the host's volume: the one whose disk grows the
// most or, if none grows, the largest one if its end brings need bytes. It returns true
// if one was ended and its space is free; the container's reason is "disk". A container
// cannot be paused instead: any use would resume it, and its space would stay taken.
func (k *Service) Relieve(ctx context.Context, need int64) bool {
	ctx, cancel := context.WithTimeout(ctx, relieveTime)
	defer cancel()
	w, found := fullest(k.meter.measure(ctx), need)
	if !found {
		return false
	}
	s := w.s
	cause := fmt.Errorf("it has %d bytes on its disk, %d more than at the last check, and the volume has %d too few", w.bytes, w.growth, need)
	// It must stop before its end is saved: that may need the space which it is eating.
	if k.opts.Driver.Features().Pause && s.driver.acquire(ctx) == nil {
		if err := k.opts.Driver.Pause(ctx, string(s.id)); err != nil {
			k.opts.Log.Warn("failed to pause a container that fills the disk", "container", s.id, "err", err)
		}
		s.driver.release()
	}
	k.deaths.end(s, reasonDisk, goneError(&s.body, reasonDisk), cause, nil)
	return k.deaths.remove(s) == nil
}

// measure returns what the running sandboxes have on their disks.
func (m *meter) measure(ctx context.Context) []written {
	var mu sync.Mutex
	var all []written
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
			all = append(all, written{s, read.Disk, read.Disk - s.health.disk.Load()})
			return nil
		})
	}
	_ = g.Wait()
	return all
}

// fullest returns the sandbox that fills the volume.
func fullest(all []written, need int64) (w written, found bool) {
	for _, one := range all {
		if one.growth >= leastGrowth && one.growth > w.growth {
			w, found = one, true
		}
	}
	if found {
		return w, true
	}
	for _, one := range all {
		if one.bytes >= need && one.bytes > w.bytes {
			w, found = one, true
		}
	}
	return w, found
}

// hostFull returns an error for the client if a sandbox's disk is full because the host's
// volume is, and nil if it is the sandbox's own limit.
func (fl *Files) hostFull(ctx context.Context, s *instance) error {
	err := fl.opts.Room()
	if err == nil {
		return nil
	}
	limit := fl.opts.limitsOf(s.body.MemoryLimit).Disk
	if read, rerr := fl.meter.read(ctx, s); rerr == nil && read.Disk > limit-limit/20 {
		return nil
	}
	return err
}
